"""Settings of `robo-rl identify`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, at_least


@dataclass
class IdentifyConfig:
    """`robo-rl identify`: fit the simulated arm's servos to recorded motion."""

    data: str = (
        REQUIRED  # dataset recorded under joint_position control: joint positions seen, targets commanded
    )
    env: str | None = None  # whose arm is fitted; none: the one that the dataset names
    out: str = "runs/identify"  # results.json, and randomise.yaml for randomise=
    steps: int = at_least(2, 20)  # length of a stretch that is simulated from one recorded instant
    stretches: int = at_least(2, 40)  # at most so many, evenly over the recorded motion
    held_out: float = at_least(0.0, 0.25)  # share of episodes that judge the fit and are not fitted to
    delays: list[int] | None = None  # steps of delay to try; none: 0, 1 and 2
