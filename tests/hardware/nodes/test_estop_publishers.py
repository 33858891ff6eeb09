"""Several publishers of `estop`: a press by any counts, and a release counts when no other one presses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.bus.in_process import InProcessBus, InProcessWorld
from hardware.messages import Diagnostics, Flag, Odometry
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.shared.emergency_stop import STILL_PRESSED, EmergencyStop
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import RatesLander
from hardware.topics import ESTOP, JOINT_STATES, ODOM, SAFETY_STATE
from tests.hardware.arm_descriptions import arm, state
from tests.hardware.bundles import ENVELOPE
from tests.hardware.scripted_bus import ScriptedBus

LATCHED = "not armed: the emergency stop is still pressed: release it, then arm"


class Desk:
    """A filter whose robot stands still, and two buttons."""

    def __init__(self, kind: str) -> None:
        self.world, self.said, self.status = InProcessWorld(), list[str](), list[Diagnostics]()
        bus, robot = self.world.bus("filter"), self.world.bus("robot")
        self.button, self.second = self.world.bus("button"), self.world.bus("second")
        if kind == "arm":
            SafetyFilterNode(bus, arm(), say=self.said.append)
            tell = JOINT_STATES.publisher(robot)
            robot.timer(0.01, lambda: tell(state(np.zeros(3))))
        else:
            flight_filter = FlightFilter(ENVELOPE, RatesLander(0.5), 100.0, 100.0, "rates")
            FlightFilterNode(bus, flight_filter, 100.0, say=self.said.append)
            tell_odom, none = ODOM.publisher(robot), np.zeros(3)
            robot.timer(0.01, lambda: tell_odom(Odometry(0.0, none, np.array([1.0, 0, 0, 0]), none, none)))
        SAFETY_STATE.subscribe(robot, lambda message, at: self.status.append(message))
        self.robot = robot
        self.run(0.2)

    def run(self, seconds: float) -> None:
        end_s = self.world.now() + seconds
        self.robot.spin(lambda: self.world.now() >= end_s - 1e-9)

    def arm(self) -> tuple[bool, str]:
        self.run(0.6)
        return self.robot.call("filter/arm", 1.0)


@pytest.mark.parametrize("kind", ["arm", "quadcopter"])
def test_second_button_does_not_release_the_first(kind: str) -> None:
    """Answer of ~/arm, terminal and status say why the robot cannot be armed."""
    desk = Desk(kind)
    first, second = ESTOP.publisher(desk.button), ESTOP.publisher(desk.second)
    first(Flag(True))
    for _ in range(3):  # a program that repeats what it knows
        second(Flag(False))
        assert desk.arm() == (False, f"{LATCHED}; {STILL_PRESSED}")
    assert desk.said.count(f"filter: {STILL_PRESSED}.") == 1
    assert desk.status[-1].status[0].message.startswith(STILL_PRESSED)
    first(Flag(False))
    assert desk.arm()[0]


def test_released_press_of_an_ended_program_needs_another_release() -> None:
    """As after `ros2 topic pub --once /estop ... true`: its end releases nothing, a later false does."""
    desk = Desk("arm")
    ESTOP.publisher(desk.button)(Flag(True))
    desk.run(0.1)
    desk.button.close()
    assert desk.arm() == (False, LATCHED)
    ESTOP.publisher(desk.second)(Flag(False))
    assert desk.arm()[0]


def test_press_is_not_lost_behind_the_release_of_another() -> None:
    """Both come within one look of a busy filter."""
    desk = Desk("arm")
    first, second = ESTOP.publisher(desk.button), ESTOP.publisher(desk.second)
    assert desk.arm()[0]
    first(Flag(True))
    second(Flag(False))
    assert not desk.arm()[0]


def listening(
    bus: Any, say: Callable[[str], None] = lambda line: None
) -> tuple[EmergencyStop, list[bool | str]]:
    heard: list[bool | str] = []
    stop = EmergencyStop(
        bus, lambda message, at: heard.append(message.on), lambda: heard.append("unheard"), say
    )
    return stop, heard


STEPS = st.tuples(st.integers(0, 2), st.sampled_from([True, False, "end"]))


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_release_counts_only_when_nobody_presses(steps: list[tuple[int, bool | str]]) -> None:
    """Three programs that press, release, end and start again, in any order."""
    world = InProcessWorld()
    _, heard = listening(world.bus("filter"))
    buses: dict[int, InProcessBus] = {}
    send: dict[int, Callable[[Flag], None]] = {}
    pressed: dict[int, bool] = {}
    latched = False
    for i, step in steps:
        if step == "end":
            pressed.pop(i, None)
            if i in buses:
                buses.pop(i).close()
            continue
        if i not in buses:
            buses[i] = world.bus(f"button{i}")
            send[i] = ESTOP.publisher(buses[i])
        pressed[i] = bool(step)
        send[i](Flag(pressed[i]))
        while world._deliver():
            pass
        latched = pressed[i] or (latched and any(pressed.values()))
        assert (heard[-1] if heard else False) is latched


def test_replaced_publisher_counts_as_ended() -> None:
    """One that was never heard ends while another starts, between two looks."""

    class Bus(ScriptedBus):
        tell: Any
        change: Any

        def subscribe_senders(self, *given: Any) -> None:
            self.tell, self.change = given[3:]

    bus = Bus()
    _, heard = listening(bus)
    bus.change(frozenset({1}))
    bus.change(frozenset({2}))
    assert heard == ["unheard"]
    bus.tell(Flag(False), 0.0, 2)
    bus.change(frozenset({3}))
    assert heard == ["unheard", False]


def test_message_of_one_publisher_is_not_that_of_another() -> None:
    """The end of a silent program stops the robot, though a button was heard."""
    desk = Desk("arm")
    ESTOP.publisher(desk.button)
    ESTOP.publisher(desk.second)(Flag(False))
    assert desk.arm()[0]
    desk.button.close()
    desk.run(1.0)
    assert "none of its messages had arrived" in desk.status[-1].status[0].message


def test_release_needs_a_sole_publisher_where_senders_are_not_told_apart() -> None:
    """rclpy tells no sender. Other releases say how to go on, once."""
    bus, said = ScriptedBus(), list[str]()
    stop, heard = listening(bus, said.append)
    say, publishers = bus.heard[ESTOP.name], bus.watched[ESTOP.name]
    publishers(("/button", "/page"))
    say(Flag(False), 0.0)  # nothing is pressed
    say(Flag(True), 0.0)
    say(Flag(False), 0.0)
    assert heard == [False, True]
    assert "has 2 publishers" in stop.explained((False, "not armed"))[1]
    for on in (True, False):  # programs that repeat what they know
        say(Flag(on), 0.0)
        assert "has 2 publishers" in stop.refused
    assert len(said) == 1
    publishers(("/button",))
    say(Flag(False), 0.0)
    assert heard == [False, True, True, False]
    assert stop.explained((False, "not armed")) == (False, "not armed")
