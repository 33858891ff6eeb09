"""Motion of a joint_trajectory_controller, modelled or real, under streamed commands.

    python benchmarks/controller_stream.py
    python benchmarks/controller_stream.py --controller real   # needs ROS 2 with ros2_control

One joint at 1 rad/s, commands at 50 Hz, a controller at 1 kHz, servos with a lag of 48 ms, messages delayed
by up to 0 or 4 ms. For each way of commanding: the largest change of the command at a message [mrad], where
one cycle of the controller is 1 mrad, and how long the command is behind its target [ms].

    single1, single2  one waypoint without velocities, due after one or two periods
    stream            the waypoints of the driver `ros2_control`; `joins`: it starts at its desired state
    measured, desired the controller starts at the measured state, or at its desired one
                      (`interpolate_from_desired_state`)

`real` starts the controller manager of examples/ros2_control at 1 kHz, whose mock hardware stays 48 mrad
behind its commands, and the node controller_driver. Each line has the model's value for that hardware beside
the real one. Where permitted, all of them run before other work (SCHED_FIFO 20). Instead of `stream` there
are the driver's outputs: `trajectory`, `action` and `forward`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from common import emit, parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the model of tests/

from tests.hardware.arms.real_controller import FORWARD, RealWay, missing_packages, real_motion
from tests.hardware.arms.stream_run import Motion, Way, moved, single, stream

JITTERS_S = (0.0, 0.004)
SINGLE: tuple[RealWay, ...] = ("single1", "single2")
ROUNDS = 3


def ways() -> dict[str, Way]:
    """The ways of commanding, each with nothing remembered."""
    return {
        "single1": single(1.0),
        "single2": single(2.0),
        "stream": stream(joins=False),
        "stream_joins": stream(joins=True),
    }


def model() -> None:
    """Every way, with and without delays, in the model."""
    for name in ways():
        for start, from_desired in (("measured", False), ("desired", True)):
            for jitter_s in JITTERS_S:
                motion = moved(ways()[name], from_desired, jitter_s)
                path, extra = f"controller/{name}/{start}", {"jitter_ms": 1e3 * jitter_s}
                emit(f"{path}/jump_mrad", motion.jump_mrad, "mrad", **extra)
                emit(f"{path}/behind_ms", motion.behind_ms, "ms", **extra)


def real() -> None:
    """Every way with the real controller."""
    if missing := missing_packages():
        raise SystemExit(missing)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # ends the controller manager, too
    for start, from_desired in (("measured", False), ("desired", True)):
        for way in SINGLE:
            tell(f"{way}/{start}", partial(real_motion, way, from_desired=from_desired), expected(way, start))
        driven = partial(real_motion, "driver", from_desired=from_desired)
        tell(f"trajectory/{start}", driven, expected(f"stream{'_joins' * from_desired}", start))
    tell("action/desired", partial(real_motion, "driver", output="action"))
    tell("forward", partial(real_motion, "driver", FORWARD))


def expected(way: str, start: str) -> Motion:
    """The model's motion for states at a constant distance behind the commands."""
    return moved(ways()[way], start == "desired", mock=True)


def tell(name: str, measure: Callable[[], Motion], modelled: Motion | None = None) -> None:
    """Medians of `ROUNDS` measurements of one way of commanding, with the machine's load."""
    found = [measure() for _ in range(ROUNDS)]
    for key, unit in (("jump_mrad", "mrad"), ("behind_ms", "ms")):
        values = sorted(getattr(motion, key) for motion in found)
        extra = {} if modelled is None else {"model": round(getattr(modelled, key), 2)}
        load = round(os.getloadavg()[0], 1)
        emit(f"controller/real/{name}/{key}", median(values), unit, runs=values, load=load, **extra)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--controller", choices=("model", "real"), default="model")
    if options.parse_args().controller == "real":
        real()
    else:
        model()


if __name__ == "__main__":
    main()
