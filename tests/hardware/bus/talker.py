"""Node for tests in its own process: joint states, pictures, latched messages and a custom type."""

from __future__ import annotations

import time

import numpy as np
from cyclonedds.idl import make_idl_struct
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic

from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.protocol import Profile

RATE_HZ = 50.0
NAMES = tuple(f"joint{i}" for i in range(20))


def main() -> None:
    """`python -m tests.hardware.bus.talker`, in the domain ROS_DOMAIN_ID, until it is killed."""
    bus = DdsBus("talker", "lab")
    joints = bus.publisher("joint_states", m.JointState, Profile.STATE)
    pictures = bus.publisher("camera/view/image_raw", m.Image, Profile.SENSOR)
    bus.publisher("manifest", m.Text, Profile.LATCHED)(m.Text("x" * 500))
    bus.subscribe("estop", m.Flag, Profile.LATCHED, lambda flag, _: None)
    made = make_idl_struct("Gripper_", "acme_msgs.msg.dds_.Gripper_", {"width": float})
    own = DataWriter(bus._participant, Topic(bus._participant, "rt/lab/gripper", made))
    picture = np.zeros((48, 64, 3), np.uint8)
    bus.timer(1.0 / RATE_HZ, lambda: joints(m.JointState(1.5, NAMES, np.arange(20.0) / 8)))
    bus.timer(0.2, lambda: pictures(m.Image(2.5, picture, "view_optical")))
    end_s = time.monotonic() + 120.0  # should nobody kill it
    bus.spin(lambda: time.monotonic() > end_s)
    del own


if __name__ == "__main__":
    main()
