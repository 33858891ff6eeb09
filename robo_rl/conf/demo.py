"""Settings of `robo-rl demo`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import setting


@dataclass
class DemoConfig:
    """`robo-rl demo`."""

    out: str = setting("runs/demo", "folder for all stages and report.html")
    env: str = setting("metaworld/peg-insert-side-v3", "environment, one with a scripted expert")
    demos: int = setting(20, "number of demonstrations", at_least=1)
    expert_noise: float = setting(
        0.1, "standard deviation of the noise on the expert's actions", at_least=0.0
    )
    base_updates: int = setting(3000, "updates of the base policy", at_least=1)
    steering_steps: int = setting(12000, "environment steps of steering", at_least=100)
    residual_steps: int = setting(24000, "environment steps of residual learning", at_least=100)
    distill_updates: int = setting(2000, "updates of the single-step head in each round", at_least=1)
    episodes: int = setting(100, "episodes of each evaluation, the same for all policies", at_least=1)
    video_episodes: int = setting(2, "episodes of each policy in the film", at_least=0)
    seed: int = setting(0, "seed of all stages", at_least=0)
    overwrite: bool = setting(False, "start anew; false: keep finished stages")
