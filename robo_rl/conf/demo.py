"""Settings of `robo-rl demo`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import setting


@dataclass
class DemoConfig:
    """`robo-rl demo`."""

    out: str = setting("runs/demo", "everything goes here; report.html at the end")
    env: str = setting("metaworld/peg-insert-side-v3", "a task with a scripted expert")
    demos: int = setting(20, "demonstrations", at_least=1)
    expert_noise: float = setting(0.1, "spread added to the expert's actions", at_least=0.0)
    base_updates: int = setting(3000, "of the base policy", at_least=1)
    steering_steps: int = setting(12000, "environment steps of noise steering", at_least=100)
    residual_steps: int = setting(24000, "environment steps of residual learning", at_least=100)
    distill_updates: int = setting(2000, "of the single-step head, per round", at_least=1)
    episodes: int = setting(100, "of every row of the table, the same for all", at_least=1)
    video_episodes: int = setting(2, "filmed of every row", at_least=0)
    seed: int = setting(0, "of the whole demo", at_least=0)
    overwrite: bool = setting(False, "start over; otherwise stages that are done are kept")
