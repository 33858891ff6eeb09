"""Node for tests in its own process: greets, sends back what it receives, and ends on request."""

from __future__ import annotations

import sys

from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.protocol import Profile
from hardware.bus.wire import WIRE


def main() -> None:
    """`python -m tests.hardware.bus.echo`, in the domain ROS_DOMAIN_ID."""
    bus, done = DdsBus("echo", "lab"), []
    for kind in WIRE:
        back = bus.publisher(f"back/{kind.__name__}", kind, Profile.COMMAND)
        bus.subscribe(
            f"there/{kind.__name__}", kind, Profile.COMMAND, lambda record, _, back=back: back(record)
        )
    bus.publisher("hello", m.Text, Profile.LATCHED)(m.Text("I am here"))
    bus.publisher("pictures", m.Floats, Profile.SENSOR)
    bus.service("~/stop", lambda: (not done.append(True), "leaving"))
    bus.service("~/refuse", lambda: (False, "not now: ü"))
    bus.spin(lambda: bool(done))
    bus.close()
    print("closed")


if __name__ == "__main__":
    sys.exit(main())
