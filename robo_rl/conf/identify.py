"""Settings of `robo-rl identify`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, setting


@dataclass
class IdentifyConfig:
    """`robo-rl identify`: fit the simulated arm's servos to recorded motion."""

    data: str = setting(
        REQUIRED, "dataset recorded under joint_position control: joint positions seen, targets commanded"
    )
    env: str | None = setting(None, "whose arm is fitted; none: the one that the dataset names")
    out: str = setting("runs/identify", "results.json, and randomise.yaml for randomise=")
    steps: int = setting(20, "length of a stretch that is simulated from one recorded instant", at_least=2)
    stretches: int = setting(40, "at most so many, evenly over the recorded motion", at_least=2)
    held_out: float = setting(
        0.25, "share of episodes that judge the fit and are not fitted to", at_least=0.0
    )
    delays: list[int] | None = setting(None, "steps of delay to try; none: 0, 1 and 2")
