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
    env: str | None = setting(
        None, "environment whose states are visited; none: the one that the teacher was trained on"
    )
    net: NetConfig = variant(NETS, "network of the head")
    rollout_steps: int = setting(
        8000,
        "environment steps in which the teacher alone acts; times half its `execute` for a teacher that "
        "corrects single steps (residual, PLD), which gives one label per executed chunk",
        at_least=100,
    )
    rounds: int = setting(2, "number of later rounds, in which the student acts part of the time", at_least=0)
    round_steps: int = setting(4000, "environment steps of each later round, times the same", at_least=100)
    student_share: float = setting(
        0.5, "share of decisions in a later round that the student makes", at_least=0.0, at_most=1.0
    )
    max_episode_steps: int | None = setting(
        None, "longest episode, in steps; none: the environment's own limit", at_least=1
    )
    num_envs: int = setting(10, "number of episodes rolled out in parallel", at_least=1)
    eval_episodes: int = setting(
        100, "episodes of the final evaluation, the same for head and teacher", at_least=1
    )
    eval_seed: int = setting(0, "seed of the final evaluation", at_least=0)
    checkpoint_every: int = setting(1000, "updates between two checkpoints", at_least=1)
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the run in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`; it is deleted when the new one is done")
