"""Settings of `robo-rl fly`."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import at_least
from robo_rl.core.settings import one_of
from robo_rl.rl.first_order import FirstOrderConfig


@dataclass
class FlyConfig(FirstOrderConfig):
    """`robo-rl fly`: train a flight policy from nothing through differentiable dynamics, and compare it."""

    task: str = one_of("hover", "figure8")  # hold a point, or follow a figure-eight (trained on random curves)
    speed_m_s: float = at_least(0.01, 2.0)  # figure8: largest speed on the figure that is measured
    craft: str = "cf2x_l2f"  # a craft by name, or a YAML file of one's own
    out: str = "runs/fly"  # everything goes here
    flights: int = at_least(1, 128)  # flown side by side in training
    hidden: list[int] = field(default_factory=lambda: [64, 64])  # the policy's layers
    history: int = at_least(0, 8)  # last actions that the policy sees
    integral: bool = True  # it sees the integral of its position error: no rest error under a constant push
    randomize: float = at_least(0.0, 0.0)  # half-width of mass, inertia, thrust, motor lag and drag, as a fraction
    eval_flights: int = at_least(1, 1000)  # starts of every row of the table, the same for all
    eval_s: float | None = at_least(0.1, None)  # length of each; none: 5 s for hover, 10 s for figure8
    eval_seed: int = at_least(0, 1)  # which starts
    seed: int = at_least(0, 0)  # of the first training
    seeds: int = at_least(1, 1)  # trainings, from `seed` on; the first one's policy is kept
    checkpoint_every: int = at_least(1, 200)  # updates
    video: bool = True  # film the policy; needs no display
    eager: bool = False  # do not compile the simulator
    resume: bool = False  # go on with the training in `out` after its last checkpoint
    overwrite: bool = False  # replace the run in `out`
