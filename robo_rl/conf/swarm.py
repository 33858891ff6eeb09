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

    drones: int = setting(8, "in every world", at_least=1)
    density: float = setting(
        0.2, "share of the 64 inner cells that hold a cylinder, measured with; 0 ... 1", at_least=0.0
    )
    scenarios: list[str] = setting(
        ["random", "swap", "same_goal", "formation", "pursuit"],
        "goals: random, swap (in pairs), same_goal, formation (circle to grid), pursuit (one moving goal)",
    )
    also: list[str] = setting([], "measure the same policy with these too, e.g. [16x40,32x80]: drones x %")
    engine: str = one_of(
        "quad", "pybullet", help="physics engine; pybullet: contacts bounce, downwash; far slower"
    )
    craft: str = setting("cf2x_l2f", "a craft by name, or a YAML file of one's own")
    downwash: bool = setting(
        False, "engine=quad: drones push down those below; needs a craft with coefficients, e.g. cf2x_gym"
    )
    out: str = setting("runs/swarm", "everything goes here")
    updates: int = setting(1400, "steps of the optimiser", at_least=1)
    lr: float = setting(8e-3, "at the start; falls linearly to final_lr", at_least=0.0)
    worlds: int = setting(32, "side by side in training", at_least=1)
    train_density: float = setting(
        0.8, "worlds of training are drawn between 0 and this, or density if higher", at_least=0.0
    )
    train_s: float = setting(8.0, "length of a world in training", at_least=0.1)
    ramp: float = setting(
        0.5, "share of training in which densities and collision cost rise to full value", at_least=0.0
    )
    replay: float = setting(
        0.5, "share of worlds that begin again 1.5 s before a collision; 0 ... 1", at_least=0.0
    )
    neighbours: int = setting(6, "nearest drones that a drone sees", at_least=1)
    cylinders: int = setting(4, "nearest cylinders that it sees", at_least=1)
    history: int = setting(4, "its own last actions that it sees", at_least=0)
    width: int = setting(64, "of the policy's layers", at_least=1)
    token: int = setting(16, "numbers by which it knows a thing near", at_least=1)
    heads: int = setting(4, "of its attention", at_least=1)
    low_m: float = setting(1.0, "starts and goals are no lower")
    high_m: float = setting(3.0, "... and no higher")
    eval_episodes: int = setting(
        100, "unseen worlds to measure in; of larger swarms fewer, as many drones in all", at_least=1
    )
    eval_s: float = setting(15.0, "length of each", at_least=0.1)
    eval_seed: int = setting(1, "which worlds", at_least=0)
    seed: int = setting(0, "of the first training", at_least=0)
    seeds: int = setting(1, "trainings, from `seed` on; the first one's policy is kept", at_least=1)
    checkpoint_every: int = setting(100, "updates", at_least=1)
    video: bool = setting(True, "film the policy; needs no display")
    eager: bool = setting(False, "do not compile the simulator")
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the training in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`")
