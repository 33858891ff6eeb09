"""Settings of `robo-rl fly`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robo_rl.conf.fields import logger_setting, setting, variant
from robo_rl.conf.fly_method import METHODS
from robo_rl.core.settings import one_of
from robo_rl.rl.differentiable.first_order import FirstOrderConfig


@dataclass
class FlyConfig(FirstOrderConfig):
    """`robo-rl fly`: train a flight policy from nothing through differentiable dynamics, and compare it."""

    task: str = one_of(
        "hover", "figure8", "waypoints", "race", "obstacles", help="point, curve, points, gates, field"
    )
    level: str = one_of(
        "motors", "rates", help="what is commanded; rates: thrust and body rates, as over a link"
    )
    rate_rad_s: float = setting(
        6.0, "level=rates: largest commanded roll and pitch rate; half of it for yaw", at_least=0.0
    )
    start: str = one_of(
        "random", "lqr", help="hover: what the policy is before it learns; lqr: exactly that linear law"
    )
    speed_m_s: float | None = setting(
        None, "figure8: 2; at most: waypoints 2, race 3.5, obstacles 1.5", at_least=0.01
    )
    track: str = setting("ring", "race: a track by name, or a YAML file of one's own")
    track_scale: float = setting(
        1.0, "race: all lengths of the track times this, for larger crafts", at_least=0.01
    )
    gate_shift_m: float = setting(
        0.0, "race: in training every gate stands up to this far off along each axis", at_least=0.0
    )
    baseline_speed_m_s: float | None = setting(
        None, "race: of the path of classical controllers; none: 1.5", at_least=0.01
    )
    density: float = setting(
        0.2, "obstacles: share of the 64 cells with a cylinder, measured with; 0 ... 1", at_least=0.0
    )
    train_density: float = setting(
        0.8, "obstacles: training draws between 0 and this, or density if higher", at_least=0.0
    )
    cylinders: int = setting(4, "obstacles: how many of the nearest are seen, at most 9", at_least=1)
    planner: bool = setting(
        False, "obstacles: classical controllers follow a path around the cylinders, not a straight line"
    )
    engine: str = one_of("quad", "pybullet", help="physics engine; pybullet runs at a tenth of the speed")
    craft: str = setting("cf2x_l2f", "a craft by name, or a YAML file of one's own")
    out: str = setting("runs/fly", "everything goes here")
    updates: int = setting(0, "of the policy; 0: the default of the task", at_least=0)
    horizon: int = setting(0, "steps that a gradient reaches back; 0: the default of the task", at_least=0)
    lr: float = setting(0.0, "learning rate at the start; 0: the default of the task", at_least=0.0)
    flights: int = setting(128, "flown side by side in training", at_least=1)
    hidden: list[int] = setting([64, 64], "the policy's layers")
    history: int = setting(8, "last actions that the policy sees", at_least=0)
    integral: bool = setting(
        True, "hover, figure8: it sees the integral of its position error: no rest error under a push"
    )
    w_action_rate: float | None = setting(
        None, "cost of changing commands, per square; none: the task's own", at_least=0.0
    )
    randomize: float = setting(
        0.0, "half-width of mass, inertia, thrust, motor lag and drag, as a fraction", at_least=0.0
    )
    latency_s: float | None = setting(
        None, "commands act this late; none: 0, at level=rates 0.02, as a link", at_least=0.0
    )
    sensor_delay_s: float = setting(
        0.0, "positions arrive this much later, as from motion capture", at_least=0.0
    )
    flow_delay_s: float = setting(
        0.0, "velocities arrive this much later, as from optical flow", at_least=0.0
    )
    gyro_bias_rad_s: float = setting(
        0.0, "spread over flights of what the gyro says at rest; 0.02 is common", at_least=0.0
    )
    gust_m_s: float = setting(
        0.0, "standard deviation of horizontal gusts, for crafts with drag", at_least=0.0
    )
    battery_s: float = setting(
        0.0, "a charge hovers this long, thrust falls with it; 0: no battery", at_least=0.0
    )
    eval_episodes: int = setting(1000, "starts of every row of the table, the same for all", at_least=1)
    eval_s: float | None = setting(
        None, "of each; none: 5 s hover, 10 s figure8, 15 s obstacles, else 20 s", at_least=0.1
    )
    eval_seed: int = setting(1, "which starts", at_least=0)
    seed: int = setting(0, "of the first training", at_least=0)
    seeds: int = setting(1, "trainings, from `seed` on; the first one's policy is kept", at_least=1)
    checkpoint_every: int = setting(200, "updates", at_least=1)
    video: bool = setting(True, "film the policy; needs no display")
    eager: bool = setting(False, "do not compile the simulator")
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the training in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`")
    method: Any = variant(METHODS, "how it learns")
