"""Process with a second publisher: commands the arm from one end of its range to the other."""

from __future__ import annotations

import signal
import sys
import time

import numpy as np

from hardware.bus.choose import make_bus
from hardware.messages import JointState, JointTrajectory
from hardware.topics import JOINT_STATES, RAW, SAFE, TELEOP
from tests.hardware.arm_descriptions import NAMES, PERIOD_S

COMMANDS = {topic.name: topic for topic in (RAW, SAFE, TELEOP)}
RATE_HZ = 500.0


def main(topic: str, kind: str = "dds") -> None:
    """`python -m tests.hardware.nodes.stranger <topic> [dds|rclpy]`, in ROS_DOMAIN_ID, until SIGTERM."""
    bus, sent, ended = make_bus("stranger", bus=kind), 0, list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    say = (JOINT_STATES if topic == JOINT_STATES.name else COMMANDS[topic]).publisher(bus)

    def speak() -> None:
        nonlocal sent
        sent += 1
        place = np.full(3, 1.0 if sent // 100 % 2 else -1.0)
        if topic == JOINT_STATES.name:
            say(JointState(time.time(), NAMES, place))  # type: ignore[arg-type]
        else:  # without a stamp: in the order of receipt
            say(JointTrajectory(0.0, NAMES, place[None], np.array([PERIOD_S])))  # type: ignore[arg-type]

    bus.timer(1.0 / RATE_HZ, speak)
    bus.spin(lambda: bool(ended))
    bus.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
