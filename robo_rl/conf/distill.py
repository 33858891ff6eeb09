"""Settings of `robo-rl distill`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, logger_setting, setting, variant
from robo_rl.conf.train import NETS
from robo_rl.nets.registry import NetConfig
from robo_rl.rl.distillation.distill import DistillConfig


@dataclass
class DistillVerb(DistillConfig):
    """`robo-rl distill`."""

    teacher: str = setting(REQUIRED, "policy folder, run or <run>@<step>: a base, steered or residual policy")
    out: str = setting(REQUIRED, "folder of the run")
    env: str | None = setting(None, "where to visit states; none: the environment the teacher was trained on")
    net: NetConfig = variant(NETS, "the head's network")
    rollout_steps: int = setting(8000, "environment steps of the teacher alone", at_least=100)
    rounds: int = setting(2, "then rounds in which the student drives part of the time", at_least=0)
    round_steps: int = setting(4000, "environment steps of each", at_least=100)
    student_share: float = setting(
        0.5, "decisions of a round that the student executes", at_least=0.0, at_most=1.0
    )
    max_episode_steps: int | None = setting(None, "none: the environment's own", at_least=1)
    num_envs: int = setting(10, "lanes that are rolled out together", at_least=1)
    eval_episodes: int = setting(100, "head and teacher on the same episodes at the end", at_least=1)
    eval_seed: int = setting(0, "which episodes", at_least=0)
    checkpoint_every: int = setting(1000, "updates between two saved states", at_least=1)
    logger: str = logger_setting()
    resume: bool = setting(False, "go on with the run in `out` after its last saved state")
    overwrite: bool = setting(False, "replace the run in `out`")
