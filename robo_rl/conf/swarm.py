"""Settings of `robo-rl swarm`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import logger_setting, one_of, setting
from robo_rl.rl.differentiable.first_order import FirstOrderConfig


@dataclass
class SwarmConfig(FirstOrderConfig):
    """`robo-rl swarm`: train one policy for all drones of a swarm among obstacles, and measure it on unseen
    worlds.
    """

    drones: int = setting(8, "number of drones in every world", at_least=1)
    density: float = setting(
        0.2, "share of the 64 inner cells with a cylinder in measurement; 0 ... 1", at_least=0.0
    )
    scenarios: list[str] = setting(
        ["random", "swap", "same_goal", "formation", "pursuit"],
        "goals: random, swap (in pairs), same_goal, formation (circle to grid), pursuit (one moving goal)",
    )
    also: list[str] = setting([], "additional measurements as drones x density in %, e.g. [16x40,32x80]")
    engine: str = one_of(
        "quad", "pybullet", help="physics engine; pybullet has contacts and downwash and is far slower"
    )
    craft: str = setting("cf2x_l2f", "a craft by name, or your own YAML file")
    downwash: bool = setting(
        False, "engine=quad: downwash on drones below; needs a craft with its coefficients, e.g. cf2x_gym"
    )
    out: str = setting("runs/swarm", "folder of the run: policy, table, plots, video")
    updates: int = setting(1400, "updates of the policy", at_least=1)
    lr: float = setting(8e-3, "learning rate at the start; falls linearly to final_lr", at_least=0.0)
    worlds: int = setting(32, "parallel worlds in training", at_least=1)
    train_density: float = setting(
        0.8, "largest density in training (at least `density`); drawn from 0 up", at_least=0.0
    )
    train_s: float = setting(8.0, "length of a training episode [s]", at_least=0.1)
    ramp: float = setting(
        0.5, "share of training in which densities and collision cost rise to full value", at_least=0.0
    )
    replay: float = setting(
        0.5, "share of training episodes that replay 1.5 s before a collision; 0 ... 1", at_least=0.0
    )
    neighbours: int = setting(6, "number of nearest drones in the observation", at_least=1)
    cylinders: int = setting(4, "number of nearest cylinders in the observation", at_least=1)
    history: int = setting(4, "number of own last actions in the observation", at_least=0)
    width: int = setting(64, "width of the policy's layers", at_least=1)
    token: int = setting(16, "width of the embedding of a drone or cylinder", at_least=1)
    heads: int = setting(4, "number of attention heads", at_least=1)
    low_m: float = setting(1.0, "lowest start and goal [m]")
    high_m: float = setting(3.0, "highest start and goal [m]")
    eval_episodes: int = setting(
        100,
        "measured worlds, not used in training; fewer for larger swarms (same number of drones)",
        at_least=1,
    )
    eval_s: float = setting(15.0, "length of a measured episode [s]", at_least=0.1)
    eval_seed: int = setting(1, "seed of the measured worlds", at_least=0)
    seed: int = setting(0, "seed of the first training", at_least=0)
    seeds: int = setting(
        1, "number of trainings, with seeds from `seed` on; the policy of the first is kept", at_least=1
    )
    checkpoint_every: int = setting(100, "updates between two checkpoints", at_least=1)
    video: bool = setting(True, "record a video of the policy; needs no display")
    eager: bool = setting(False, "do not compile the simulator")
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the training in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`")
