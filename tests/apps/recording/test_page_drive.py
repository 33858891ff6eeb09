"""Messages of the page's driving, for an arm with a gripper."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.messages import Flag, JointJog, Twist
from hardware.topics import INTERVENTION, JOINT_JOG, TWIST
from robo_rl.apps.recording.driving.drive import PageDrive
from robo_rl.core.errors import ConfigError


def test_the_page_flags_its_own_interventions_alone() -> None:
    """True from the first tick, also before arming; false at a hand-over, never at the start."""
    world = InProcessWorld()
    flags = list[bool]()
    INTERVENTION.subscribe(world.bus("filter"), lambda message, _: flags.append(message.on))
    bus = world.bus("app")
    bus.timer(0.02, lambda: None)  # lets the time pass
    drive = PageDrive(bus, load_description("sim_arm"))
    world.run(lambda: world.now() > 0.1)
    assert flags == []
    drive.tick(armed=False, held=False)
    world.run(lambda: world.now() > 0.15)
    drive.hand(False)
    drive.tick(armed=True, held=False)
    drive.let_go()
    world.run(lambda: world.now() > 0.2)
    assert flags == [True, False]


def test_an_intervention_that_another_program_ends_is_given_up() -> None:
    """The page says then that the policy is in control, as the safety filter does."""
    world = InProcessWorld()
    bus = world.bus("app")
    bus.timer(0.02, lambda: None)  # lets the time pass
    drive = PageDrive(bus, load_description("sim_arm"))
    send = INTERVENTION.publisher(world.bus("other"))
    drive.tick(armed=True, held=False)
    world.run(lambda: world.now() > 0.1)
    assert (drive.was_ended(), drive.human) == (False, True)
    send(Flag(False))
    world.run(lambda: world.now() > 0.2)
    assert (drive.was_ended(), drive.human) == (True, False)
    assert not drive.was_ended()


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
