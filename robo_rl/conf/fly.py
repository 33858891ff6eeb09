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
    """`robo-rl fly`: train a flight policy in simulation and compare it with classical controllers."""

    task: str = one_of(
        "hover",
        "figure8",
        "waypoints",
        "race",
        "obstacles",
        help="hold a point; track a curve; reach points; race gates; cross a field of cylinders",
    )
    level: str = one_of(
        "motors", "rates", help="command level; rates: thrust and body rates, as sent to an autopilot"
    )
    rate_rad_s: float = setting(
        6.0, "level=rates: largest commanded roll and pitch rate [rad/s]; half of it for yaw", at_least=0.0
    )
    start: str = one_of(
        "random", "lqr", help="hover: initial policy; lqr: exactly the linear-quadratic controller"
    )
    speed_m_s: float | None = setting(
        None,
        "figure8: speed; else the largest [m/s]; none: 2, 2 (waypoints), 3.5 (race), 1.5 (obstacles)",
        at_least=0.01,
    )
    track: str = setting("ring", "race: a track by name, or your own YAML file")
    track_scale: float = setting(
        1.0, "race: factor of all lengths of the track, for larger crafts", at_least=0.01
    )
    gate_shift_m: float = setting(
        0.0, "race: largest random shift of every gate per axis in training [m]", at_least=0.0
    )
    baseline_speed_m_s: float | None = setting(
        None, "race: speed of classical controllers along their path [m/s]; none: 1.5", at_least=0.01
    )
    density: float = setting(
        0.2, "obstacles: share of the 64 cells with a cylinder in measurement; 0 ... 1", at_least=0.0
    )
    train_density: float = setting(
        0.8, "obstacles: largest density in training (at least `density`); drawn from 0 up", at_least=0.0
    )
    cylinders: int = setting(
        4, "obstacles: number of nearest cylinders in the observation, at most 9", at_least=1
    )
    planner: bool = setting(
        False, "obstacles: classical controllers follow a path around the cylinders, not a straight line"
    )
    engine: str = one_of("quad", "pybullet", help="physics engine; pybullet runs at a tenth of the speed")
    craft: str = setting("cf2x_l2f", "a craft by name, or your own YAML file")
    out: str = setting("runs/fly", "folder of the run: policy, table, plots, video")
    updates: int = setting(0, "updates of the policy; 0: the default of the task", at_least=0)
    horizon: int = setting(0, "control steps that gradients go back; 0: the default of the task", at_least=0)
    lr: float = setting(0.0, "learning rate at the start; 0: the default of the task", at_least=0.0)
    flights: int = setting(0, "parallel flights in training; 0: 128, on a GPU 1024", at_least=0)
    device: str = setting(
        "cpu", "device that trains: cpu, cuda or cuda:<number>; measurement and film stay on the CPU"
    )
    hidden: list[int] = setting([64, 64], "widths of the policy's hidden layers")
    history: int = setting(8, "number of last actions in the observation", at_least=0)
    integral: bool = setting(
        True, "hover, figure8: observe the integral of the position error, against constant forces"
    )
    w_action_rate: float | None = setting(
        None, "weight of the squared change of commands in the cost; none: the task's own", at_least=0.0
    )
    randomize: float = setting(
        0.0,
        "randomisation of mass, inertia, thrust, motor lag and drag: half-width as a fraction",
        at_least=0.0,
    )
    latency_s: float | None = setting(
        None, "delay of commands [s]; none: 0, at level=rates 0.02, as over a radio link", at_least=0.0
    )
    sensor_delay_s: float = setting(
        0.0, "delay of measured positions [s], as from motion capture", at_least=0.0
    )
    flow_delay_s: float = setting(0.0, "delay of measured velocities [s], as from optical flow", at_least=0.0)
    gyro_bias_rad_s: float = setting(
        0.0, "standard deviation of the gyro's bias over flights [rad/s]; 0.02 is common", at_least=0.0
    )
    gust_m_s: float = setting(
        0.0, "standard deviation of horizontal gusts [m/s], for crafts with drag", at_least=0.0
    )
    battery_s: float = setting(
        0.0, "hovering time of a full charge [s], thrust falls with the charge; 0: no battery", at_least=0.0
    )
    eval_episodes: int = setting(
        1000, "measured flights per row of the table, from the same starts", at_least=1
    )
    eval_s: float | None = setting(
        None,
        "length of a measured flight [s]; none: hover 5, figure8 10, obstacles 15, else 20",
        at_least=0.1,
    )
    eval_seed: int = setting(1, "seed of the measured starts", at_least=0)
    seed: int = setting(0, "seed of the first training", at_least=0)
    seeds: int = setting(
        1, "number of trainings, with seeds from `seed` on; the policy of the first is kept", at_least=1
    )
    checkpoint_every: int = setting(200, "updates between two checkpoints", at_least=1)
    video: bool = setting(True, "record a video of the policy; needs no display")
    eager: bool = setting(False, "do not compile the simulator")
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the training in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`")
    method: Any = variant(METHODS, "learning method")
