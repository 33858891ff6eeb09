"""Motion of a modelled joint_trajectory_controller under streamed commands.

    python benchmarks/controller_stream.py

One joint at 1 rad/s, commands at 50 Hz, a controller at 1 kHz, servos with a lag of 48 ms, messages delayed
by up to 0 or 4 ms. For each way of commanding: the largest change of the command at a message [mrad], where
one cycle of the controller is 1 mrad, and how long the command is behind its target [ms].

    single1, single2  one waypoint without velocities, due after one or two periods
    stream            the waypoints of the driver `ros2_control`; `joins`: it starts at its desired state
    measured, desired the controller starts at the measured state, or at its desired one
                      (`interpolate_from_desired_state`)
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import emit, parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the model of tests/

from tests.hardware.arms.stream_run import Way, moved, single, stream

JITTERS_S = (0.0, 0.004)


def ways() -> dict[str, Way]:
    """The ways of commanding, each with nothing remembered."""
    return {
        "single1": single(1.0),
        "single2": single(2.0),
        "stream": stream(joins=False),
        "stream_joins": stream(joins=True),
    }


def main() -> None:
    parser(__doc__ or "").parse_args()
    for name in ways():
        for start, from_desired in (("measured", False), ("desired", True)):
            for jitter_s in JITTERS_S:
                motion = moved(ways()[name], from_desired, jitter_s)
                path, extra = f"controller/{name}/{start}", {"jitter_ms": 1e3 * jitter_s}
                emit(f"{path}/jump_mrad", motion.jump_mrad, "mrad", **extra)
                emit(f"{path}/behind_ms", motion.behind_ms, "ms", **extra)


if __name__ == "__main__":
    main()
