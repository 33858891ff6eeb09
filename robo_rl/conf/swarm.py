"""Settings of `robo-rl swarm`."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import at_least, one_of
from robo_rl.rl.differentiable.first_order import FirstOrderConfig


@dataclass
class SwarmConfig(FirstOrderConfig):
    """`robo-rl swarm`: train one policy for all drones of a swarm among obstacles, and measure it on unseen
    worlds.
    """

    drones: int = at_least(1, 8)  # in every world
    density: float = at_least(
        0.0, 0.2
    )  # share of the 64 inner cells that hold a cylinder, measured with; 0 ... 1
    scenarios: list[str] = field(
        default_factory=lambda: ["random", "swap", "same_goal", "formation", "pursuit"]
    )  # goals: random | swap (two by two) | same_goal | formation (circle to grid) | pursuit (one moving goal)
    also: list[str] = field(
        default_factory=list
    )  # measure the same policy with these too, e.g. [16x40,32x80]: drones x %
    engine: str = one_of(
        "quad", "pybullet"
    )  # whose physics: quad, or pybullet: things bounce, air falls; far slower
    craft: str = "cf2x_l2f"  # a craft by name, or a YAML file of one's own
    downwash: bool = (
        False  # engine=quad: drones push down those below; needs a craft with coefficients, e.g. cf2x_gym
    )
    out: str = "runs/swarm"  # everything goes here
    updates: int = at_least(1, 1400)  # steps of the optimiser
    lr: float = at_least(0.0, 8e-3)  # at the start; falls linearly to final_lr
    worlds: int = at_least(1, 32)  # side by side in training
    train_density: float = at_least(
        0.0, 0.8
    )  # worlds of training are drawn between 0 and this, or density if higher
    train_s: float = at_least(0.1, 8.0)  # length of a world in training
    ramp: float = at_least(
        0.0, 0.5
    )  # share of training in which densities and collision cost rise to full value
    replay: float = at_least(0.0, 0.5)  # share of worlds that begin again 1.5 s before a collision; 0 ... 1
    neighbours: int = at_least(1, 6)  # nearest drones that a drone sees
    cylinders: int = at_least(1, 4)  # nearest cylinders that it sees
    history: int = at_least(0, 4)  # its own last actions that it sees
    width: int = at_least(1, 64)  # of the policy's layers
    token: int = at_least(1, 16)  # numbers by which it knows a thing near
    heads: int = at_least(1, 4)  # of its attention
    low_m: float = 1.0  # starts and goals are no lower
    high_m: float = 3.0  # ... and no higher
    episodes: int = at_least(
        1, 100
    )  # unseen worlds to measure in; of larger swarms fewer, as many drones in all
    eval_s: float = at_least(0.1, 15.0)  # length of each
    eval_seed: int = at_least(0, 1)  # which worlds
    seed: int = at_least(0, 0)  # of the first training
    seeds: int = at_least(1, 1)  # trainings, from `seed` on; the first one's policy is kept
    checkpoint_every: int = at_least(1, 100)  # updates
    video: bool = True  # film the policy; needs no display
    eager: bool = False  # do not compile the simulator
    resume: bool = False  # go on with the training in `out` after its last checkpoint
    overwrite: bool = False  # replace the run in `out`
