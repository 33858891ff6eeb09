"""Settings of `robo-rl fly`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from robo_rl.conf.fields import at_least, variant
from robo_rl.conf.fly_method import METHODS
from robo_rl.core.settings import one_of
from robo_rl.rl.differentiable.first_order import FirstOrderConfig


@dataclass
class FlyConfig(FirstOrderConfig):
    """`robo-rl fly`: train a flight policy from nothing through differentiable dynamics, and compare it."""

    task: str = one_of(
        "hover", "figure8", "waypoints", "race", "obstacles"
    )  # point, curve, points, gates, field
    level: str = one_of("motors", "rates")  # what is commanded; rates: thrust and body rates, as over a link
    rate_rad_s: float = at_least(
        0.0, 6.0
    )  # level=rates: most that is asked for, roll and pitch; half of it yaw
    start: str = one_of(
        "random", "lqr"
    )  # hover: what the policy is before it learns; lqr: exactly that linear law
    speed_m_s: float | None = at_least(
        0.01, None
    )  # figure8: 2; at most: waypoints 2, race 3.5, obstacles 1.5
    track: str = "ring"  # race: a track by name, or a YAML file of one's own
    track_scale: float = at_least(0.01, 1.0)  # race: all lengths of the track times this, for larger crafts
    gate_shift_m: float = at_least(
        0.0, 0.0
    )  # race: in training every gate stands up to this far off along each axis
    baseline_speed_m_s: float | None = at_least(
        0.01, None
    )  # race: of the path of classical controllers; none: 1.5
    density: float = at_least(
        0.0, 0.2
    )  # obstacles: share of the 64 cells with a cylinder, measured with; 0 ... 1
    train_density: float = at_least(
        0.0, 0.8
    )  # obstacles: training draws between 0 and this, or density if higher
    cylinders: int = at_least(1, 4)  # obstacles: how many of the nearest are seen, at most 9
    planner: bool = (
        False  # obstacles: classical controllers follow a path around the cylinders, not a straight line
    )
    engine: str = one_of("quad", "pybullet")  # whose physics; pybullet: at a tenth of the speed
    craft: str = "cf2x_l2f"  # a craft by name, or a YAML file of one's own
    out: str = "runs/fly"  # everything goes here
    updates: int = at_least(0, 0)  # of the policy; 0: what suits the task
    horizon: int = at_least(0, 0)  # steps that a gradient reaches back; 0: what suits the task
    lr: float = at_least(0.0, 0.0)  # learning rate at the start; 0: what suits the task
    flights: int = at_least(1, 128)  # flown side by side in training
    hidden: list[int] = field(default_factory=lambda: [64, 64])  # the policy's layers
    history: int = at_least(0, 8)  # last actions that the policy sees
    integral: bool = (
        True  # hover, figure8: it sees the integral of its position error: no rest error under a push
    )
    w_action_rate: float | None = at_least(
        0.0, None
    )  # cost of changing commands, per square; none: the task's own
    randomize: float = at_least(
        0.0, 0.0
    )  # half-width of mass, inertia, thrust, motor lag and drag, as a fraction
    latency_s: float | None = at_least(
        0.0, None
    )  # commands act this late; none: 0, at level=rates 0.02, as a link
    sensor_delay_s: float = at_least(0.0, 0.0)  # positions arrive this much later, as from motion capture
    flow_delay_s: float = at_least(0.0, 0.0)  # velocities arrive this much later, as from optical flow
    gyro_bias_rad_s: float = at_least(
        0.0, 0.0
    )  # spread over flights of what the gyro says at rest; 0.02 is common
    gust_m_s: float = at_least(0.0, 0.0)  # standard deviation of horizontal gusts, for crafts with drag
    battery_s: float = at_least(0.0, 0.0)  # a charge hovers this long, thrust falls with it; 0: no battery
    eval_flights: int = at_least(1, 1000)  # starts of every row of the table, the same for all
    eval_s: float | None = at_least(
        0.1, None
    )  # of each; none: 5 s hover, 10 s figure8, 15 s obstacles, else 20 s
    eval_seed: int = at_least(0, 1)  # which starts
    seed: int = at_least(0, 0)  # of the first training
    seeds: int = at_least(1, 1)  # trainings, from `seed` on; the first one's policy is kept
    checkpoint_every: int = at_least(1, 200)  # updates
    video: bool = True  # film the policy; needs no display
    eager: bool = False  # do not compile the simulator
    resume: bool = False  # go on with the training in `out` after its last checkpoint
    overwrite: bool = False  # replace the run in `out`
    method: Any = variant(METHODS)  # how it learns
