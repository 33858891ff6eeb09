"""Settings of `robo-rl distill`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, at_least, fraction, variant
from robo_rl.conf.train import NETS
from robo_rl.nets.registry import NetConfig
from robo_rl.rl.distillation.distill import DistillConfig


@dataclass
class DistillVerb(DistillConfig):
    """`robo-rl distill`."""

    teacher: str = REQUIRED  # policy folder or run: a base, steered or residual policy
    out: str = REQUIRED  # folder of the run
    env: str | None = None  # where to visit states; none: the environment the teacher was trained on
    net: NetConfig = variant(NETS)  # the head's network
    rollout_steps: int = at_least(100, 8000)  # environment steps of the teacher alone
    rounds: int = at_least(0, 2)  # then rounds in which the student drives part of the time
    round_steps: int = at_least(100, 4000)  # environment steps of each
    student_share: float = fraction(0.5)  # decisions of a round that the student executes
    max_episode_steps: int | None = at_least(1, None)  # none: the environment's own
    num_envs: int = at_least(1, 10)  # lanes that are rolled out together
    eval_episodes: int = at_least(1, 100)  # head and teacher on the same episodes at the end
    eval_seed: int = at_least(0, 0)  # which episodes
    checkpoint_every: int = at_least(1, 1000)  # updates between two saved states
    resume: bool = False  # go on with the run in `out` after its last saved state
    overwrite: bool = False  # replace the run in `out`
