"""A recorder as a process of its own, to be killed: `python -m tests.hardware.nodes.record <folder>`."""

from __future__ import annotations

import sys

from hardware.bus.dds.bus import DdsBus
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.topics import JOINT_STATES, TASK, image_topic

TOPICS = (JOINT_STATES, image_topic("wrist"), TASK)


def main() -> None:
    """Record at once, until killed."""
    bus = DdsBus("recorder", "lab")
    RecorderNode(
        bus, RecorderConfig(out=sys.argv[1], start=True), TOPICS, lambda text: print(text, flush=True)
    )
    bus.spin(lambda: False)


if __name__ == "__main__":
    main()
