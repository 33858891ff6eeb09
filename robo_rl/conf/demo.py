"""Settings of `robo-rl demo`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import at_least


@dataclass
class DemoConfig:
    """`robo-rl demo`."""

    out: str = "runs/demo"  # everything goes here; report.html at the end
    env: str = "metaworld/peg-insert-side-v3"  # a task with a scripted expert
    demos: int = at_least(1, 20)  # demonstrations
    expert_noise: float = at_least(0.0, 0.1)  # spread added to the expert's actions
    base_updates: int = at_least(1, 3000)  # of the base policy
    steering_steps: int = at_least(100, 12000)  # environment steps of noise steering
    residual_steps: int = at_least(100, 24000)  # environment steps of residual learning
    distill_updates: int = at_least(1, 2000)  # of the single-step head, per round
    episodes: int = at_least(1, 100)  # of every row of the table, the same for all
    video_episodes: int = at_least(0, 2)  # filmed of every row
    seed: int = at_least(0, 0)  # of the whole demo
    overwrite: bool = False  # start over; otherwise stages that are done are kept
