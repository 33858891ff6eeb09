"""From teleoperation to a policy: episodes recorded through nodes, imported, used for training, evaluated.

    python benchmarks/teleop.py                    # 3 seeds of 100 episodes, and as many of robo-rl collect

The operator is scripted: the expert of arm6/reach, with noise, moves a leader arm. The rest is as on a robot:
teleop node, safety filter, simulated arm and recorder on one bus, here in virtual time. The recordings are
imported by `robo-rl data import`. For comparison, episodes collected directly in the environment are used in
the same way. Names: teleop/<recorded|collected>/success, teleop/import/frames_per_cpu_s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import numpy as np
import torch
from common import cpu_seconds, emit, own_folder, parser, verb
from numpy import ndarray

from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.messages import Floats
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.nodes.teleop import TeleopNode
from hardware.teleop.device import NOTHING, Feedback, OperatorInput
from hardware.topics import GOAL, INTERVENTION, JOINT_STATES, SAFE, TASK, TELEOP
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.stats import SuccessRate
from sim.arms.arm6.body import HOME_RAD, SimulatedArm
from sim.arms.arm6.expert import ArmExpert
from sim.arms.arm6.lanes import start_of
from sim.arms.arm6.reach import CONTROL_HZ, Arm6ReachTask

ENV, GOAL_UNIT = "arm6/reach", "m: goal_x, goal_y, goal_z"
NOISE = 0.1
TRAIN = {"chunk": 16, "steps": 3000}
HOME_SLOWLY = 0.02  # [rad per 1/50 s] of the leader towards the next start, between episodes


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--episodes", type=int, default=100, help="episodes per operator")
    options.add_argument("--seeds", type=int, default=3, help="number of operators, from seed 0")
    options.add_argument(
        "--folder", type=Path, default=Path("runs/teleop"), help="folder of finished stages, which are kept"
    )
    args = options.parse_args()
    torch.set_num_threads(1)
    episodes, seeds, folder = args.episodes, range(args.seeds), own_folder(args.folder)
    if args.quick:
        episodes, seeds = 4, range(1)
    found: dict[str, list[dict[str, Any]]] = {"recorded": [], "collected": []}
    for seed in seeds:
        own = folder / f"seed{seed}"
        recorded, collected = own / "recorded", own / "collected"
        if not recorded.exists():
            if not (own / "recordings").exists():
                drive(own / "recordings", episodes, seed)
            started_s = cpu_seconds()
            verb(
                "data import",
                source=own / "recordings",
                robot="sim_arm",
                env=ENV,
                goal=GOAL_UNIT,
                out=recorded,
            )
            frames = EpisodeStore(recorded).totals.frames
            emit(
                "teleop/import/frames_per_cpu_s",
                frames / (cpu_seconds() - started_s),
                "frames/cpu-s",
                seed=seed,
            )
        if not collected.exists():
            verb("collect", env=ENV, episodes=episodes, noise=NOISE, seed=seed, out=collected)
        for name, data in (("recorded", recorded), ("collected", collected)):
            found[name].append(trained(data, own / f"{name}-run", seed, quick=args.quick))
    for name, results in found.items():
        k, n = (sum(result[key] for result in results) for key in ("k", "n"))
        rate = SuccessRate(k, n)
        each = [result["k"] / result["n"] for result in results]
        emit(
            f"teleop/{name}/success",
            rate.rate,
            "fraction",
            k=k,
            n=n,
            wilson95=list(rate.wilson()),
            per_seed=each,
            demonstrations=episodes,
        )


def trained(data: Path, run: Path, seed: int, *, quick: bool) -> dict[str, Any]:
    """Train on the dataset, evaluate without noise on starts that no seed has used; {"k", "n"}."""
    result = run / "result.json"
    if not result.exists():
        settings = TRAIN | ({"steps": 50} if quick else {})
        verb("train", data=data, out=run, seed=seed, overwrite=True, **settings)
        verb("evaluate", policy=run / "policy", noise=0, episodes=4 if quick else 100, seed=1, out=result)
    report = json.loads(result.read_text())
    return {"k": report["k"], "n": report["n"]}


def _silent(sentence: str) -> None:
    """Terminal output of nodes is also on the bus."""


class Operator:
    """Leader arm moved by the expert, which observes joints and goal. goal_m None: it moves to `rest_rad`."""

    def __init__(self, see: Callable[[], tuple[ndarray, ndarray]], noise: float, seed: int) -> None:
        self.goal_m: Float[ndarray, " 3"] | None = None
        self.rest_rad: Float[ndarray, " 6"] = np.array(HOME_RAD)
        self.holds, self.episode, self.closed = True, 0, False
        self._see, self._expert, self._steps = see, ArmExpert("reach", noise, seed), 0

    def begin(self, episode: int, goal_m: Float[ndarray, " 3"]) -> None:
        """Set another goal."""
        self.goal_m, self.episode, self._steps = goal_m, episode, 0

    def connect(self) -> None:
        """Do nothing: the leader is simulated."""

    def send_feedback(self, feedback: Feedback) -> None:
        """Do nothing."""

    def help(self) -> str:
        return "The expert moves the leader."

    def get_action(self, now_s: float) -> OperatorInput:
        """Current position of the leader."""
        position_rad, velocity_rad_s = self._see()
        if not self.holds:
            return NOTHING
        if self.goal_m is None:
            step_rad = np.clip(self.rest_rad - position_rad, -HOME_SLOWLY, HOME_SLOWLY)
            return OperatorInput(True, position_rad=position_rad + 4.0 * step_rad)  # the servos lag
        state = np.concatenate([position_rad, velocity_rad_s, self.goal_m]).astype(np.float32)
        which, step = torch.tensor([self.episode]), torch.tensor([self._steps])
        action = self._expert.act({"state": torch.from_numpy(state)[None]}, which, step)
        self._steps += 1
        return OperatorInput(True, position_rad=action[0].numpy().astype(np.float64))

    def close(self) -> None:
        self.closed = True


class Station:
    """Arm, filter, teleop and recorder in one process, in virtual time."""

    def __init__(
        self, folder: Path, seed: int, noise: float = NOISE, say: Callable[[str], None] = _silent
    ) -> None:
        self.world, self.body, robot = InProcessWorld(), SimulatedArm(), load_description("sim_arm")
        buses = {
            name: self.world.bus(name)
            for name in ("sim_robot", "safety_filter", "teleop", "recorder", "task")
        }
        self.task, self.bus = Arm6ReachTask(HOME_RAD), buses["task"]
        self.operator = Operator(self.body.read, noise, seed)
        SimArmNode(buses["sim_robot"], self.body, robot.state_hz, robot)
        self.filter = SafetyFilterNode(buses["safety_filter"], robot, arm=True, say=say)
        TeleopNode(buses["teleop"], self.operator, robot, say)
        topics = [JOINT_STATES, SAFE, TELEOP, INTERVENTION, GOAL, TASK]
        self.recorder = RecorderNode(buses["recorder"], RecorderConfig(str(folder)), topics, say)
        self._tell = GOAL.publisher(self.bus)
        self._there, self._elsewhere, self._seed = 0, SimulatedArm(), seed
        self.bus.timer(1.0 / CONTROL_HZ, self._look)

    def episode(self, number: int) -> bool:
        """Record one episode from a start to a goal drawn as in the environment; returns its success."""
        start_rad, goal_m = start_of(self.task, self._elsewhere, derive_seed("teleop", self._seed, number))
        self.operator.goal_m, self.operator.rest_rad = None, start_rad
        self._until(lambda: np.abs(self.body.read()[0] - start_rad).max() < 0.02, 10.0)
        self._tell(Floats(goal_m))
        self._wait(0.1)  # so that the recording begins with the goal of this episode
        self.recorder.begin()
        self.operator.begin(number, goal_m)
        self._there = 0
        success = self._until(lambda: self._there >= self.task.hold_steps, self.task.max_steps / CONTROL_HZ)
        self.recorder.save_as(success)
        return success

    def _look(self) -> None:
        goal_m = self.operator.goal_m
        there = goal_m is not None and self.task.is_there(self.body.tool_m(), goal_m)
        self._there = self._there + 1 if there else 0

    def _until(self, true: Callable[[], bool], within_s: float) -> bool:
        late_s = self.world.now() + within_s
        self.bus.spin(lambda: true() or self.world.now() >= late_s)
        return bool(true())

    def _wait(self, seconds: float) -> None:
        self._until(lambda: False, seconds)


def drive(folder: Path, episodes: int, seed: int, noise: float = NOISE) -> int:
    """Record so many episodes into `folder`; returns the number of successes."""
    part = folder.with_name(f"{folder.name}.part")  # a run that was interrupted is not used as a complete one
    station = Station(part, seed, noise)
    done = sum(station.episode(number) for number in range(episodes))
    station.recorder.finish()
    part.rename(folder)
    return done


if __name__ == "__main__":
    main()
