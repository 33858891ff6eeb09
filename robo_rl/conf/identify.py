"""Settings of `robo-rl identify`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, setting


@dataclass
class IdentifyConfig:
    """`robo-rl identify`: fit the simulated arm's servos to recorded motion."""

    data: str = setting(
        REQUIRED,
        "dataset recorded under joint_position control: measured joint positions and commanded targets",
    )
    env: str | None = setting(None, "environment whose arm is fitted; none: the one that the dataset names")
    out: str = setting(
        "runs/identify", "folder for results.json and for randomise.yaml, which randomise= takes"
    )
    steps: int = setting(20, "length of each simulated stretch of the recording [steps]", at_least=2)
    stretches: int = setting(
        40, "largest number of stretches, spread evenly over the recorded motion", at_least=2
    )
    held_out: float = setting(0.25, "fraction of episodes held out of the fit for its test", at_least=0.0)
    delays: list[int] | None = setting(None, "delays to try [steps]; none: 0, 1 and 2")
