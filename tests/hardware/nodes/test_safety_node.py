"""The safety filter's node between a simulated arm and senders of commands, in virtual time."""

from __future__ import annotations

import math
import signal
from typing import Any

import numpy as np
import pytest

from hardware.bus.in_process import InProcessBus, InProcessWorld
from hardware.bus.protocol import Bus, Profile
from hardware.bus.shield import shielded
from hardware.driver import WATCHDOG_S
from hardware.messages import Diagnostics, Flag
from hardware.nodes.diagnostics import DiagnosticsNode
from hardware.nodes.safety_filter import SafetyFilterNode, watchdog_hz
from hardware.nodes.shared.protocol import Node
from hardware.nodes.sim_robot import HOLDS, SimArmNode
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from hardware.topics import DIAGNOSTICS, ESTOP, INTERVENTION, JOINT_STATES, RAW, SAFE, SAFETY_STATE, TELEOP
from robo_rl.apps.nodes.node_life import Ending, listening, live
from robo_rl.core.process_signals import ASK
from tests.hardware.arm_descriptions import arm, command, state
from tests.hardware.nodes.fakes import LagArm

JOINT = {"low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}


class Cell:
    """Simulated arm, filter, and a policy that moves all joints as a sine of 0.2 rad and 4 s."""

    def __init__(self, armed: bool = True) -> None:
        self.world, self.arm = InProcessWorld(), LagArm()
        self.robot_bus, self.filter_bus, self.policy_bus = (
            self.world.bus(n) for n in ("robot", "filter", "policy")
        )
        self.robot = SimArmNode(self.robot_bus, self.arm, 50.0, arm())
        self.node = SafetyFilterNode(self.filter_bus, arm(), arm=armed)
        self.say = RAW.publisher(self.policy_bus)
        self.sequence = 0
        self.policy_bus.timer(0.02, self.speak)
        self.safe: list[tuple[float, Any]] = []
        SAFE.subscribe(self.world.bus("probe"), lambda m, at: self.safe.append((at, m.position_rad[0])))

    def speak(self) -> None:
        now_s = self.policy_bus.now()
        self.say(command(np.full(3, 0.1 - 0.1 * math.cos(0.5 * math.pi * now_s)), self.sequence))
        self.sequence += 1

    def until(self, seconds: float) -> None:
        self.filter_bus.spin(lambda: self.world.now() >= seconds)

    def silence_after(self, kill_s: float) -> float:
        """Seconds from the kill to the first command that no longer follows the sine."""
        for at, place in self.safe:
            sine = 0.1 - 0.1 * math.cos(0.5 * math.pi * at)
            if at > kill_s and abs(place[0] - sine) > 1e-4:
                return at - kill_s
        return math.inf


def test_nodes_implement_the_protocol() -> None:
    cell = Cell()
    assert isinstance(cell.node, Node)
    assert isinstance(cell.robot, Node)
    assert isinstance(cell.filter_bus, Bus)


def test_arm_follows_the_policy_through_the_filter() -> None:
    cell = Cell()
    cell.until(2.0)
    assert cell.arm.place == pytest.approx(np.full(3, 0.2), abs=0.01)
    assert cell.node.filter.reason is None


def test_safe_commands_have_stamp_zero() -> None:
    """joint_trajectory_controller compares any other stamp with its own clock, which may be a simulator's."""
    cell, stamps = Cell(), list[float]()
    SAFE.subscribe(cell.world.bus("controller"), lambda m, at: stamps.append(m.stamp_s))
    cell.until(1.0)
    assert len(stamps) > 40
    assert set(stamps) == {0.0}


@pytest.mark.parametrize(
    ("rates", "looks_hz"),
    [
        ({}, 250.0),
        ({"state_hz": 100}, 500.0),
        ({"state_hz": 2000}, 500.0),
        ({"command_hz": 1000, "state_hz": 1000}, 2000.0),
    ],
)
def test_tick_rate_follows_the_message_rates(rates: dict[str, float], looks_hz: float) -> None:
    """A state or command received just now is never stale, however rare the ticks."""
    robot = arm(**rates)
    assert watchdog_hz(robot) == looks_hz
    filter_ = ArmFilter(robot, look_s=1.5 / looks_hz)
    filter_.on_state(state([0.0] * 3), 0.0)
    assert filter_.arm(0.0)[0]
    assert filter_.on_command(command([0.0] * 3), "policy", 0.0)
    filter_.tick(0.5 / max(robot.state_hz, robot.command_hz))
    assert filter_.reason is None


def test_nothing_is_sent_before_arming() -> None:
    """And the service arms."""
    cell = Cell(armed=False)
    cell.until(1.0)
    assert not cell.safe
    assert cell.policy_bus.call("filter/arm", 1.0)[0]
    cell.until(1.5)
    assert cell.safe


def test_states_of_other_joints_are_reported_every_5_s() -> None:
    """They arrive 50 times a second and the filter is never armed."""
    world, said = InProcessWorld(), list[str]()
    bus = world.bus("filter")
    SimArmNode(world.bus("robot"), LagArm(), 50.0, arm())
    joints = [{**JOINT, "name": name} for name in ("a", "b", "see")]
    node = SafetyFilterNode(bus, arm(joints=joints), arm=True, say=said.append)
    bus.spin(lambda: world.now() >= 4.0)
    assert node.at_rest
    assert said == [
        "filter: joint_states lacks see of the robot's description; it has a, b, c. Such a state is dropped."
    ]


@pytest.mark.parametrize(
    ("offset_rad", "why"),
    [
        (math.nan, "the command contains NaN or an infinite value"),
        (
            0.5,
            f"{Reason.JUMP_AT_START.sentence}. Joint a: command 0.50 rad, arm 0.00 rad, limit "
            "start_jump_rad=0.3. Move the arm to where the demonstrations start, or raise start_jump_rad",
        ),
    ],
)
def test_dropped_commands_are_reported(offset_rad: float, why: str) -> None:
    """Fifty a second, one line in 5 s; the filter's state only shows that no command was accepted. It is said
    again while it lasts.
    """
    cell, said = Cell(), list[str]()
    cell.world.kill("filter")
    bus, other = cell.world.bus("watched"), cell.world.bus("other")
    watched, send = SafetyFilterNode(bus, arm(), arm=True, say=said.append), TELEOP.publisher(other)
    INTERVENTION.publisher(other)(Flag(True))
    other.timer(0.02, lambda: send(command(np.full(3, offset_rad), round(50 * cell.world.now()))))
    cell.until(4.0)
    assert watched.filter.phase is Phase.ARMED
    assert watched.filter.reason.sentence == "no command has been accepted yet"
    assert said == [line := f"watched: what teleop sends is dropped: {why}."]
    cell.until(9.0)
    assert said == [line, line]


KILLED_S = [1.0, 1.0001, 1.005, 1.0123, 1.0199]


@pytest.mark.parametrize("killed_s", KILLED_S)
def test_kill_9_of_the_policy_holds_within_two_periods(killed_s: float) -> None:
    """2 periods of 20 ms, whenever the policy dies: the filter ticks every 4 ms and counts ages at its
    next tick.
    """
    cell = Cell()
    cell.until(killed_s)
    cell.world.kill("policy")
    cell.until(1.3)
    assert cell.silence_after(killed_s) <= 0.04 + 1e-6
    assert cell.node.filter.reason is Reason.STALE_COMMAND
    cell.until(3.0)
    assert cell.node.at_rest
    assert len(cell.safe) < 120


@pytest.mark.parametrize("killed_s", KILLED_S)
def test_kill_9_of_the_state_holds_within_three_periods(killed_s: float) -> None:
    cell = Cell()
    cell.until(killed_s)
    cell.world.kill("robot")
    cell.until(1.3)
    assert cell.silence_after(killed_s) <= 0.06 + 1e-6
    assert cell.node.filter.reason is Reason.STALE_STATE


def test_kill_9_of_the_filter_triggers_the_watchdog() -> None:
    """The simulated driver holds by itself 80 ms after the last command."""
    cell = Cell()
    cell.until(1.005)
    cell.world.kill("filter")
    cell.until(1.005 + WATCHDOG_S + 0.03)
    assert cell.robot.holds == 1
    held = cell.arm.goal
    cell.until(2.0)
    assert np.array_equal(cell.arm.goal, held)
    assert cell.arm.place == pytest.approx(held, abs=1e-4)


def test_emergency_stop_is_latched() -> None:
    cell = Cell()
    cell.until(1.0)
    press = ESTOP.publisher(cell.world.bus("button"))
    press(Flag(True))
    cell.until(1.5)
    assert cell.node.at_rest
    assert not cell.policy_bus.call("filter/arm", 1.0)[0]
    press(Flag(False))
    cell.until(1.6)
    sent = len(cell.safe)
    cell.until(2.0)
    assert len(cell.safe) == sent
    assert cell.policy_bus.call("filter/arm", 1.0)[0]


def test_unheard_publisher_of_estop_stops_at_its_end() -> None:
    """Its message may have been lost, as those of Fast DDS that follow at once on its discovery."""
    cell = Cell()
    cell.until(1.0)
    button = cell.world.bus("button")
    ESTOP.publisher(button)
    cell.until(1.1)
    assert cell.node.filter.phase is Phase.ARMED
    button.close()
    cell.until(1.6)
    assert cell.node.at_rest
    assert cell.node.filter.reason is Reason.EMERGENCY_UNHEARD
    assert cell.policy_bus.call("filter/arm", 1.0)[0]


def test_heard_publisher_of_estop_may_end() -> None:
    cell = Cell()
    cell.until(1.0)
    button = cell.world.bus("button")
    ESTOP.publisher(button)(Flag(False))
    cell.until(1.1)
    button.close()
    cell.until(1.6)
    assert cell.node.filter.phase is Phase.ARMED


@pytest.mark.parametrize("stopped_by", ["estop", "service"])
def test_emergency_stop_cancels_arming_at_the_start(stopped_by: str) -> None:
    """`arm=true` arms once states arrive, but not when an emergency stop from before that is released."""
    cell = Cell(armed=True)
    if stopped_by == "estop":
        press = ESTOP.publisher(cell.world.bus("button"))
        press(Flag(True))
        cell.until(0.5)
        press(Flag(False))
    else:
        cell.policy_bus.call("filter/stop", 1.0)
    cell.until(1.0)
    assert not cell.safe
    assert cell.policy_bus.call("filter/arm", 1.0)[0]


def test_a_state_before_the_latched_stop_does_not_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network, states may come before what other programs said earlier; discovery takes 0.5 s here."""
    monkeypatch.setattr(InProcessBus, "discovery_s", 0.5)
    cell = Cell(armed=True)
    cell.until(0.48)
    assert cell.node.at_rest
    ESTOP.publisher(cell.world.bus("button"))(Flag(True))
    cell.until(1.0)
    assert cell.node.at_rest
    other = Cell(armed=True)
    other.until(0.3)
    ESTOP.publisher(other.world.bus("button"))  # which is silent: nothing was pressed, and 0.5 s begin anew
    other.until(0.78)
    assert other.node.at_rest
    other.until(0.9)
    assert other.node.filter.phase is Phase.ARMED


def test_sigterm_brakes_before_the_end() -> None:
    """SIGTERM in motion: brake, the last position three times, silence; then the bus is closed."""
    cell, said, ending = Cell(), list[str](), Ending()
    cell.until(1.0)
    ending.ask("SIGTERM")
    live([(cell.node, cell.filter_bus)], ending, say=said.append)
    assert said == ["filter: SIGTERM: braking, then silent; until then limited 1 acceleration."]
    assert cell.node.at_rest
    last = [place for _, place in cell.safe[-3:]]
    assert np.array_equal(last[0], last[2])


def test_interventions_are_reported_at_the_end() -> None:
    """For own robots only `robo-rl up` knows how often the filter intervened."""
    cell, said, ending = Cell(), list[str](), Ending()
    cell.until(1.0)
    cell.world.kill("policy")
    cell.until(3.0)
    ending.ask("SIGTERM")
    live([(cell.node, cell.filter_bus)], ending, say=said.append)
    assert said == [
        "filter: SIGTERM: nothing was being sent; until then limited 1 acceleration; hold 1 stale_command."
    ]


def test_second_interrupt_sends_a_hold() -> None:
    """Ctrl-C twice: no braking, but a hold at the last position is sent before the bus is closed."""
    cell, said, ending = Cell(), list[str](), Ending()

    def impatient() -> bool:
        if cell.world.now() >= 1.0:
            raise KeyboardInterrupt
        return False

    live([(cell.node, cell.filter_bus)], ending, until=impatient, say=said.append)
    assert said == ["filter: asked again (interrupted): stopped at once."]
    assert np.array_equal(cell.safe[-1][1], cell.safe[-2][1])


class _Failing:
    """A node whose timer and last message raise."""

    at_rest = True

    def stop(self, why: str) -> str:
        return why

    def last_word(self) -> None:
        raise ValueError("its last message")


def test_failing_node_keeps_no_other_from_holding_the_arm() -> None:
    """An error in a timer ends the program; the filter beside it still sends its hold."""
    cell = Cell()
    cell.until(1.0)
    bus, sent = cell.world.bus("failing"), len(cell.safe)

    def fail() -> None:
        raise LookupError("a timer")

    bus.timer(0.005, fail)
    with pytest.raises(ValueError, match="its last message") as raised:
        live([(_Failing(), bus), (cell.node, cell.filter_bus)], Ending())
    assert isinstance(raised.value.__context__, LookupError)
    assert len(cell.safe) > sent
    assert cell.node.at_rest


def test_duplicate_sigint_counts_once() -> None:
    """`ros2 launch` and the terminal both pass Ctrl-C on, within milliseconds; one second later it is a
    second one.
    """
    now_s = [10.0]
    ending = Ending(clock=lambda: now_s[0])
    ending.started = True
    for at_s in (10.0, 10.01, 10.4):
        now_s[0] = at_s
        ending.on_signal(signal.SIGINT, None)
    assert ending.why == "SIGINT"
    now_s[0] = 11.0
    with pytest.raises(KeyboardInterrupt):
        ending.on_signal(signal.SIGTERM, None)


def test_what_follows_from_the_first_signal_is_no_second_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ros2 launch` passes Ctrl-C on after the terminal, and a launcher may end long after Ctrl-\\: a craft
    lands on, and only another signal switches its motors off.
    """
    now_s = [10.0]
    ending = Ending(clock=lambda: now_s[0])
    ending.started = True
    ending.on_signal(signal.SIGQUIT, None)
    assert (ending.why, ending.code) == ("SIGQUIT", 131)
    now_s[0] = 12.0
    ending.on_signal(ASK, None)
    monkeypatch.setattr("os.getppid", lambda: 1)
    ending.on_signal(signal.SIGTERM, None)
    now_s[0] = 12.01
    ending.on_signal(signal.SIGTERM, None)  # of another thread of the launcher
    now_s[0] = 13.0
    with pytest.raises(KeyboardInterrupt):
        ending.on_signal(signal.SIGTERM, None)


@pytest.mark.parametrize("number", [signal.SIGQUIT, ASK])
def test_quit_and_the_request_of_a_launch_stop_a_node(number: signal.Signals) -> None:
    """The last message is protected from them."""
    with listening() as ending:
        ending.started = True
        signal.raise_signal(number)
        with shielded():
            signal.raise_signal(number)
    assert ending.why == {signal.SIGQUIT: "SIGQUIT", ASK: "its launcher stops it"}[number]


def test_a_late_request_of_a_launch_does_not_kill_a_node_that_has_ended() -> None:
    """After Ctrl-C in a terminal the launcher asks as well."""
    before = signal.signal(ASK, signal.SIG_DFL)
    try:
        with listening():
            pass
        signal.raise_signal(ASK)
    finally:
        signal.signal(ASK, before)


def test_interrupt_while_loading_ends_at_once() -> None:
    """Nothing moves while a policy is being loaded, so the first Ctrl-C does not wait for it."""
    ending = Ending()
    with pytest.raises(KeyboardInterrupt):
        ending.on_signal(signal.SIGINT, None)
    assert ending.why == "SIGINT"


def test_exception_sends_a_hold() -> None:
    """A defect in any callback: the hold is sent before the traceback."""
    cell, ending = Cell(), Ending()
    cell.until(1.0)
    sent = len(cell.safe)

    def broken() -> bool:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        live([(cell.node, cell.filter_bus)], ending, until=broken, say=lambda sentence: None)
    assert len(cell.safe) > sent


def test_diagnostics_collect_statuses_and_report_silence() -> None:
    cell = Cell()
    DiagnosticsNode(cell.world.bus("diagnostics"))
    heard: list[Diagnostics] = []
    DIAGNOSTICS.subscribe(cell.world.bus("reader"), lambda m, at: heard.append(m))
    cell.until(2.2)
    row = next(row for row in heard[-1].status if row.name == "filter")
    assert (row.name, row.level, row.message) == ("filter", 0, "following policy")
    cell.world.kill("filter")
    cell.policy_bus.spin(lambda: cell.world.now() >= 6.0)
    row = next(row for row in heard[-1].status if row.name == "filter")
    assert row.level == 3
    assert row.message.startswith("silent for")


def test_diagnostics_name_the_robot_and_the_hardware() -> None:
    """In a namespace the topic is the same, /diagnostics, and the names on it begin with the namespace."""
    world, heard = InProcessWorld(), list[Diagnostics]()
    SimArmNode(world.bus("robot", "left"), LagArm(), 50.0, arm())
    SafetyFilterNode(world.bus("filter", "left"), arm())
    DiagnosticsNode(world.bus("diagnostics", "left"), lambda sentence: None)
    reader = world.bus("reader")
    reader.subscribe("/diagnostics", Diagnostics, Profile.STATE, lambda m, at: heard.append(m))
    reader.spin(lambda: world.now() >= 2.5)
    assert {row.name: row.hardware_id for row in heard[-1].status} == {
        "left/filter": "small",
        "left/robot": "left",
    }


def test_requested_end_is_not_reported_as_a_fault() -> None:
    """The filter ends as requested, and the arm holds without commands; a killed filter is still reported."""
    cell, said, heard = Cell(), list[str](), list[Diagnostics]()
    DiagnosticsNode(cell.world.bus("diagnostics"), said.append)
    DIAGNOSTICS.subscribe(cell.world.bus("reader"), lambda m, at: heard.append(m))
    cell.until(3.2)
    assert said == []
    cell.node.stop("Ctrl-C")
    cell.until(5.0)
    cell.world.kill("filter")
    cell.robot.stop("Ctrl-C")
    cell.policy_bus.spin(lambda: cell.world.now() >= 5.6)
    cell.world.kill("robot")
    cell.policy_bus.spin(lambda: cell.world.now() >= 12.0)
    assert said == []
    assert {row.name: (row.level, row.message) for row in heard[-1].status} == {
        "filter": (0, "ended: Ctrl-C"),
        "robot": (0, "ended: Ctrl-C"),
    }


def test_lasting_effect_of_an_end_is_reported() -> None:
    """The policy's end was requested; that the arm still holds without commands is reported after a while."""
    cell, said = Cell(), list[str]()
    DiagnosticsNode(cell.world.bus("diagnostics"), said.append)
    cell.until(2.2)
    cell.node.stop("Ctrl-C")
    cell.until(2.6)
    cell.world.kill("filter")
    cell.policy_bus.spin(lambda: cell.world.now() >= 8.0)
    assert said == [f"robot: {HOLDS}"]


def test_status_changes_are_published_at_once() -> None:
    cell, heard = Cell(), list[tuple[float, str]]()
    SAFETY_STATE.subscribe(cell.world.bus("reader"), lambda m, at: heard.append((at, m.status[0].message)))
    cell.until(1.005)
    cell.world.kill("policy")
    cell.until(1.2)
    assert [message for at, message in heard if 1.005 < at < 1.06] == [Reason.STALE_COMMAND.sentence]


def test_gripper_may_publish_joint_states_if_described() -> None:
    """Two publishers of joint_states may be an arm and its gripper; a third one is a fault."""
    for allowed, stops in ((1, True), (2, False)):
        world = InProcessWorld()
        SimArmNode(world.bus("robot"), LagArm(), 50.0, arm())
        node = SafetyFilterNode(world.bus("filter"), arm(state_publishers=allowed), say=lambda line: None)
        JOINT_STATES.publisher(world.bus("gripper"))
        assert bool(node.filter.rivals) is stops
        JOINT_STATES.publisher(world.bus("third"))
        assert "joint_states has 3 publishers" in node.filter.rivals
