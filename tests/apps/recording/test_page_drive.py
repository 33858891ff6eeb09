"""Messages of the page's driving, for an arm with a gripper."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.messages import JointJog, Twist
from hardware.topics import JOINT_JOG, TWIST
from robo_rl.apps.recording.driving.drive import PageDrive
from robo_rl.core.errors import ConfigError


def test_the_gripper_moves_beside_the_hand() -> None:
    """Opening is positive: 0.4 of the joint's largest speed, beside the twist; released, both are zero."""
    world = InProcessWorld()
    robot, bus = load_description("sim_arm_gripper"), world.bus("app")
    twists, jogs = list[Twist](), list[JointJog]()
    TWIST.subscribe(bus, lambda message, _: twists.append(message))
    JOINT_JOG.subscribe(bus, lambda message, _: jogs.append(message))
    drive = PageDrive(bus, robot)
    drive.take("tool", np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0]))
    drive.tick(armed=True, held=False)
    world.run(lambda: len(jogs) == 1)
    drive.release()
    drive.tick(armed=True, held=False)
    world.run(lambda: len(jogs) == 2)
    np.testing.assert_allclose(twists[0].linear_m_s, [0.0, 0.0, 0.15])
    assert [jog.names for jog in jogs] == [("gripper",), ("gripper",)]
    np.testing.assert_allclose([jog.velocity_rad_s[0] for jog in jogs], [-0.04, 0.0])
    with pytest.raises(ConfigError, match="5 values to drive tool came, expected 7"):
        drive.take("tool", np.zeros(5))
