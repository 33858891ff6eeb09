"""Write a dataset of your own robot, read it back, and train a policy on it.

The contract, `EnvSpec`, names the observations and commands of a policy, with shapes and units. The units
name the joints, as in the robot's description: `robo-rl contract` compares them before anything moves. A name
that begins with `robot/` means that no simulator has this environment.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

import robo_rl as rr
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter

JOINTS = "rad: base, shoulder, elbow"  # a unit, and the name of each number
SPEC = EnvSpec(
    name="robot/my_arm",
    obs={"state": ArraySpec((3,), unit=JOINTS)},
    action=ActionSpec(low=(-1.0, -1.0, -1.0), high=(1.0, 1.0, 1.0), unit=JOINTS),
    max_episode_steps=100,
    control_hz=20.0,
)


def main(out: Path, quick: bool = False) -> rr.Run:
    rng = np.random.default_rng(0)
    with closing(DatasetWriter.create(out / "data", SPEC)) as data:
        for _ in range(3 if quick else 20):
            joints, goal = rng.uniform(-0.8, 0.8, (2, 3)).astype(np.float32)
            with data.episode(task="go to the rest pose", operator="me") as episode:
                for _ in range(15):
                    command = joints + 0.3 * (goal * 0.0 - joints)  # joint targets that the robot executed
                    episode.add({"state": joints}, command)
                    joints = command
                episode.commit(success=True)
    dataset = rr.Dataset(out / "data")
    print(f"{len(dataset)} episodes of {dataset.spec.name} at {dataset.spec.control_hz:g} Hz")
    return rr.train(data=out / "data", out=out / "base", steps=10 if quick else 1000, chunk=4, execute=4)


if __name__ == "__main__":
    print(main(Path("runs/examples/own_dataset")).policy_path)
