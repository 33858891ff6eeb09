"""A recorder as a process of its own, to be killed: `python -m tests.hardware.nodes.record <folder>`."""

from __future__ import annotations

import sys

from hardware.bus.dds import DdsBus
from hardware.bus.protocol import Profile
from hardware.messages import Image, JointState, Text
from hardware.nodes.recorder import RecorderConfig, RecorderNode

TOPICS = {
    "joint_states": (JointState, Profile.STATE),
    "camera/wrist/image_raw": (Image, Profile.SENSOR),
    "task": (Text, Profile.LATCHED),
}


def main() -> None:
    """Record at once, until killed."""
    bus = DdsBus("recorder", "lab")
    RecorderNode(bus, RecorderConfig(out=sys.argv[1], record=True), TOPICS, lambda text: print(text, flush=True))
    bus.spin(lambda: False)


if __name__ == "__main__":
    main()
