"""Time until a robot stops after the process that commands its driver is killed or stalls, per driver.

    python benchmarks/driver_stop.py             # every driver whose package is installed
    python benchmarks/driver_stop.py --only ur

The robots are the fakes of the drivers' tests: processes that speak the robot's protocol on loopback, used
through the vendor's own package. Prints milliseconds from the signal to the commanding process until the fake
has read the stop. The kernel reports SIGKILL to the guard; the guard detects SIGSTOP by its watchdog of 80
ms.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # stand-ins are part of the tests

from common import emit, parser

from hardware.driver import WATCHDOG_S
from tests.hardware.peers import Peer, free_port, own_address

READY_S, STOP_S = 30.0, 5.0
SIGNALS = {"killed": signal.SIGKILL, "stalled": signal.SIGSTOP}
Event = dict[str, Any]


@dataclass(frozen=True)
class Stand:
    """One driver and its stand-in. robot: arguments of the stand-in and settings of the driver."""

    module: str  # of the vendor
    fake: str
    feeder: str
    robot: Callable[[], tuple[list[str], dict[str, Any]]]
    flies: Callable[[Event], bool]  # True for an event of a commanded motion
    rests: Callable[[Event], bool]  # True for an event of a stop by the driver


def ur() -> tuple[list[str], dict[str, Any]]:
    host = own_address()
    return [host], {"host": host}


def xarm() -> tuple[list[str], dict[str, Any]]:
    host = own_address()
    return [host, "502", "7"], {"host": host}  # the port is the protocol's own, and only root may open it


def crazyflie() -> tuple[list[str], dict[str, Any]]:
    port = free_port(socket.SOCK_DGRAM)
    return [str(port)], {"uri": f"udp://127.0.0.1:{port}", "arm": True}


def px4() -> tuple[list[str], dict[str, Any]]:
    port = free_port(socket.SOCK_DGRAM)
    return [str(port)], {"address": f"udpin:127.0.0.1:{port}"}


def px4_topics() -> tuple[list[str], dict[str, Any]]:
    return [], {"arm": True}


def crazyswarm2() -> tuple[list[str], dict[str, Any]]:
    return [], {"name": "cf231", "arm": True}


OFFBOARD, LAND = [6, 0], [4, 6]  # PX4's main and sub mode
NAV_OFFBOARD, NAV_LAND = 14, 18  # its nav_state
EXTRAS = {"px4_topics": "dds", "crazyswarm2": "dds"}  # drivers whose extra has another name
STANDS = {
    "ur": Stand("rtde_control", "arms.fake_ur", "feeder", ur, lambda e: e["event"] == "servo",
                lambda e: e["event"] == "servo_stop"),
    "xarm": Stand("xarm", "arms.fake_xarm", "feeder", xarm, lambda e: e["event"] == "servo",
                  lambda e: e["event"] == "state" and e["value"] == 4),
    "crazyflie": Stand("cflib", "quads.fake_crazyflie", "quad_feeder", crazyflie,
                       lambda e: e["event"] == "armed", lambda e: e["event"] == "land"),
    "px4": Stand("pymavlink", "quads.fake_px4", "quad_feeder", px4, lambda e: e.get("mode") == OFFBOARD,
                 lambda e: e.get("mode") == LAND and e["why"] == "command"),
    "px4_topics": Stand("cyclonedds", "quads.fake_px4_topics", "quad_feeder", px4_topics,
                        lambda e: e.get("mode") == NAV_OFFBOARD,
                        lambda e: e.get("mode") == NAV_LAND and e["why"] == "command"),
    "crazyswarm2": Stand("cyclonedds", "quads.fake_crazyswarm2", "quad_feeder", crazyswarm2,
                         lambda e: e["event"] == "armed", lambda e: e["event"] == "land"),
}  # fmt: skip


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--only", choices=list(STANDS), help="one driver")
    args = options.parse_args()
    for name in [args.only] if args.only else STANDS:
        if find_spec(STANDS[name].module) is None:
            print(
                f"{name}: its package is not installed: pip install 'robo-rl[{EXTRAS.get(name, name)}]'",
                file=sys.stderr,
            )
            continue
        for how in SIGNALS:
            times_ms = [stop_ms(name, how) for _ in range(1 if args.quick else 5)]
            extra = {"max": max(times_ms), "times_ms": times_ms, "load": os.getloadavg()[0], "aim": 100.0}
            emit(f"driver/{name}/{how}/stop_ms", median(times_ms), "ms", **extra)


def stop_ms(name: str, how: str) -> float:
    """One round with two new processes. Raises SystemExit if the robot is not stopped."""
    stand = STANDS[name]
    arguments, settings = stand.robot()
    with (
        peer(stand.fake, *arguments) as robot,
        peer(stand.feeder, name, json.dumps(settings), str(WATCHDOG_S)) as feeder,
    ):
        first(robot, stand.flies, 0.0, READY_S)
        time.sleep(1.0)
        at_s = time.monotonic()
        os.kill(feeder.process.pid, SIGNALS[how])
        return 1e3 * (first(robot, stand.rests, at_s, STOP_S)["t"] - at_s)


@contextmanager
def peer(module: str, *arguments: str) -> Iterator[Peer]:
    """Process of a stand-in or a commander; a start failure is reported in one line."""
    try:
        made = Peer(module, *arguments)
    except AssertionError as error:
        raise SystemExit(
            f"{module} {' '.join(arguments)} did not start (port below 1024: only root): {error}"
        ) from error
    with made:
        yield made


def first(robot: Peer, is_it: Callable[[Event], bool], after_s: float, within_s: float) -> Event:
    """The first such event after that time."""
    late_s = time.monotonic() + within_s
    while time.monotonic() < late_s:
        for event in list(robot.events):
            if event["t"] >= after_s and is_it(event):
                return event
        time.sleep(0.005)
    raise SystemExit(
        f"The stand-in was not told what was expected within {within_s:g} s: {robot.events[-5:]}"
    )


if __name__ == "__main__":
    main()
