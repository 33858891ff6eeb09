"""Driver of ros2_control arms over a bus in virtual time, and the driver of simulated arms."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.arms.bounds import JointLimits
from hardware.arms.ros2_control import Ros2ControlDriver
from hardware.arms.simulated import SimulatedArmDriver
from hardware.bus.protocol import Bus, Profile
from hardware.driver import Driver, make_driver
from hardware.messages import Floats, JointState, JointTrajectory
from hardware.states import JointCommand
from robo_rl.core.errors import BusError, ConfigError, DriverError, UnknownNameError
from tests.hardware.scripted_bus import ScriptedBus

LIMITS: dict[str, Any] = {"low_rad": [-1.0, -2.0], "high_rad": [1.0, 2.0], "velocity_rad_s": [1.0, 2.0]}
SAID: list[str] = []
STATE = JointState(0.0, ("finger", "b", "a"), np.array([9.0, 0.2, 0.1]), np.array([0.0, 2.0, 1.0]))


def connected(output: str, bus: ScriptedBus | None = None) -> tuple[ScriptedBus, Ros2ControlDriver]:
    bus = bus or ScriptedBus()
    assert isinstance(bus, Bus)
    bus.script = [(0.5, "joint_states", STATE)]
    arm = Ros2ControlDriver(bus, ["a", "b"], controller="jtc", output=output, say=SAID.append, **LIMITS)
    assert isinstance(arm, Driver)
    arm.connect()
    return bus, arm


def test_joints_are_found_by_name_and_a_command_is_due_after_a_period() -> None:
    """States name finger, b, a; commands a, b. At 1 rad/s and 100 Hz a step is 0.01 rad, rest 5 mrad on."""
    bus, arm = connected("trajectory")
    state = arm.read()
    assert (state.position_rad.tolist(), state.velocity_rad_s.tolist()) == ([0.1, 0.2], [1.0, 2.0])
    assert state.received_s == pytest.approx(0.5, abs=0.002)
    sent = arm.write(JointCommand(np.array([5.0, 0.2])))
    bus.now_s += 0.01
    arm.write(JointCommand(np.array([5.0, 0.2])))
    first, second = bus.sent["jtc/joint_trajectory"]
    assert isinstance(first, JointTrajectory)
    assert bus.kinds["jtc/joint_trajectory"] == (JointTrajectory, Profile.COMMAND)
    assert (first.names, first.stamp_s, first.times_s.tolist()) == (("a", "b"), 0.0, [0.0, 0.01, 0.02])
    assert first.position_rad == pytest.approx(np.array([[0.1, 0.2], [0.11, 0.2], [0.115, 0.2]]))
    assert first.velocity_rad_s == pytest.approx(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]))
    assert sent.position_rad == pytest.approx(first.position_rad[1])
    assert second.position_rad[:2] == pytest.approx(np.array([[0.11, 0.2], [0.12, 0.2]]))
    assert second.velocity_rad_s[0] == pytest.approx([1.0, 0.0])


def test_silence_leaves_a_forward_controller_at_the_last_target() -> None:
    """A measured position would be a step back by the lag of the arm, at no speed limit."""
    bus, arm = connected("forward")
    arm.write(JointCommand(np.array([0.5, 0.2])))
    written_s = bus.now_s
    bus.script = [(written_s + 0.05, "joint_states", JointState(0.0, ("a", "b"), np.array([0.3, 0.4])))]
    while not arm.stopped:
        bus.run(0.001)
    assert 0.08 < bus.now_s - written_s < 0.1
    with pytest.raises(DriverError, match=r"no command came for 80 ms.*Nothing was sent"):
        arm.write(JointCommand(np.zeros(2)))
    arm.stop("again")
    arm.close()
    (last,) = bus.sent["jtc/commands"]
    assert isinstance(last, Floats)
    assert last.values == pytest.approx([0.11, 0.2])


FAULTS = ("none", "states end", "not finite", "velocity not finite", "commands end", "stop")


@settings(max_examples=25, deadline=None)
@given(
    speeds=st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=30),
    faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=4),
    lag=st.floats(0.05, 1.0),
)
def test_forward_commands_keep_the_speed_limit_through_a_stop(
    speeds: list[float], faults: list[str], lag: float
) -> None:
    """Whatever ends the motion, each number sent is finite and at most one step from the one before."""
    bus, arm = connected("forward")
    at, target = np.array([0.1, 0.2]), np.array([0.1, 0.2])
    for fault in (*faults, "none"):
        for speed in speeds:
            if arm.stopped:
                break
            bus.run(0.01)
            target = target + 0.01 * np.array([speed, 0.0])
            at = at + lag * (target - at)
            bad = np.array([np.nan, at[1]])
            if fault != "states end":
                position = bad if fault == "not finite" else at
                velocity = bad if fault == "velocity not finite" else np.zeros(2)
                bus.heard["joint_states"](JointState(0.0, ("a", "b"), position, velocity), bus.now())
            if fault != "commands end":
                with suppress(DriverError):
                    arm.write(JointCommand(target))
            if fault == "stop":
                arm.stop("asked")
        bus.run(0.1)
    sent = np.array([message.values for message in bus.sent["jtc/commands"]])
    assert np.isfinite(sent).all()
    assert (np.abs(np.diff(sent, axis=0)) <= np.array([0.02, 0.04]) + 1e-9).all()  # two periods at most


@pytest.mark.parametrize("output", ["trajectory", "forward"])
def test_states_that_are_not_finite_count_as_missing(output: str) -> None:
    """An encoder that reports NaN: after 0.5 s the arm is stopped, and the joint is named."""
    bus, arm = connected(output)
    broken = JointState(0.0, ("a", "b"), np.array([np.nan, 0.2]))
    command = JointCommand(np.array([0.1, 0.2]))
    for _ in range(49):
        bus.heard["joint_states"](broken, bus.now())
        arm.write(command)
        bus.run(0.01)
    bus.run(0.02)
    with pytest.raises(DriverError, match=r"no finite joint_states of a came for 0\.5 s\. Nothing was sent"):
        arm.write(command)
    assert arm.stopped
    assert np.isfinite(arm.read().position_rad).all()
    bus.script = [(bus.now_s + 0.1, "joint_states", broken)]
    with pytest.raises(DriverError, match="No finite joint_states of a came"):
        arm.connect()


def test_silence_brings_a_trajectory_to_rest() -> None:
    """After 80 ms without a command the driver sends a trajectory that is at rest at the last end point."""
    bus, arm = connected("trajectory")
    for _ in range(3):
        arm.write(JointCommand(np.array([0.5, 0.2])))
        bus.run(0.01)
    while len(bus.sent["jtc/joint_trajectory"]) < 4:
        bus.run(0.001)
    moving, last = bus.sent["jtc/joint_trajectory"][-2:]
    assert moving.velocity_rad_s[0, 0] == pytest.approx(1.0, abs=1e-6)
    assert last.position_rad[:, 0] == pytest.approx(moving.position_rad[-1, 0])
    assert not last.velocity_rad_s.any()


def test_a_stop_in_motion_brakes_within_two_periods() -> None:
    """From 1 rad/s to rest within 20 ms: 10 mrad further."""
    bus, arm = connected("trajectory")
    for _ in range(3):
        arm.write(JointCommand(np.array([0.5, 0.2])))
        bus.now_s += 0.01
    arm.stop("asked")
    last = bus.sent["jtc/joint_trajectory"][-1]
    assert last.velocity_rad_s[:, 0] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert last.position_rad[1, 0] - last.position_rad[0, 0] == pytest.approx(0.01, abs=1e-6)
    assert last.times_s.tolist() == [0.0, 0.02]


class _AskedBus(ScriptedBus):
    """A bus on which the controller's parameters can be read."""

    def __init__(self, kind: str, **parameters: Any) -> None:
        super().__init__()
        self.asked = {"jtc": parameters, "controller_manager": {"jtc.type": kind}}

    def remote_parameters(self, node: str, names: Any, timeout_s: float) -> dict[str, Any]:
        return {key: value for key, value in self.asked[node].items() if key in names}


JTC = "joint_trajectory_controller/JointTrajectoryController"
FORWARD = "forward_command_controller/ForwardCommandController"
USUAL: dict[str, Any] = {
    "joints": ["b", "a"],
    "command_interfaces": ["position"],
    "interpolation_method": "splines",
}


@pytest.mark.parametrize(
    ("kind", "parameters", "topic"),
    [
        (JTC, USUAL, "jtc/joint_trajectory"),
        (FORWARD, {"joints": ["a", "b"], "interface_name": "position"}, "jtc/commands"),
        ("position_controllers/JointGroupPositionController", {"joints": ["a", "b"]}, "jtc/commands"),
    ],
)
def test_output_follows_the_controller_parameters(kind: str, parameters: Any, topic: str) -> None:
    bus, arm = connected("auto", _AskedBus(kind, **parameters))
    arm.write(JointCommand(np.array([0.1, 0.2])))
    assert [name for name, sent in bus.sent.items() if sent] == [topic]


def test_interpolating_controller_gets_no_start_waypoint() -> None:
    """With interpolate_from_desired_state; without it, the advice is to set it."""
    SAID.clear()
    bus, arm = connected("auto", _AskedBus(JTC, **USUAL, interpolate_from_desired_state=True))
    arm.write(JointCommand(np.array([0.1, 0.2])))
    assert bus.sent["jtc/joint_trajectory"][0].times_s.tolist() == [0.01, 0.02]
    assert not SAID
    connected("auto", _AskedBus(JTC, **USUAL, interpolate_from_desired_state=False))
    (advice,) = SAID
    assert "Set interpolate_from_desired_state: true" in advice


class _ManagedBus(ScriptedBus):
    """A bus with a controller manager."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Any = None

    def watch_controllers(self, manager: str, callback: Any) -> None:
        self.tell = callback


def test_deactivated_controller_gets_nothing_until_connect() -> None:
    """After an activation it would jump to where the commands are by then. The reason stays the same."""
    bus = _ManagedBus()
    _, arm = connected("trajectory", bus)
    bus.tell({"jtc": "active", "other": "inactive"})
    arm.write(JointCommand(np.array([0.1, 0.2])))
    bus.tell({"jtc": "inactive"})
    assert len(bus.sent["jtc/joint_trajectory"]) == 2  # the command and a rest
    bus.run(0.2)
    because = "the controller is inactive. Activate it: ros2 control switch_controllers --activate jtc"
    for state in ("inactive", "active"):
        bus.tell({"jtc": state})
        with pytest.raises(DriverError, match=f"{because}. Then connect again"):
            arm.write(JointCommand(np.array([0.1, 0.2])))
    assert len(bus.sent["jtc/joint_trajectory"]) == 2
    bus.script = [(bus.now_s + 0.1, "joint_states", STATE)]
    arm.connect()
    arm.write(JointCommand(np.array([0.1, 0.2])))
    assert len(bus.sent["jtc/joint_trajectory"]) == 3


def test_connect_refuses_an_inactive_controller() -> None:
    """Before the first command, activating it is enough."""
    bus = _ManagedBus()
    _, arm = connected("trajectory", bus)
    bus.tell({"jtc": "inactive"})
    with pytest.raises(DriverError, match="the controller is inactive"):
        arm.connect()
    bus.tell({"jtc": "active"})
    arm.connect()
    assert not arm.fault


def test_old_states_stop_the_commands() -> None:
    """A killed controller manager: commands still come, but nothing is sent once states are 0.5 s old."""
    bus, arm = connected("trajectory")
    while bus.now_s < 0.98:
        arm.write(JointCommand(np.array([0.1, 0.2])))
        bus.run(0.01)
    bus.run(0.03)
    with pytest.raises(DriverError, match=r"no joint_states came for 0\.5 s\. Nothing was sent"):
        arm.write(JointCommand(np.array([0.1, 0.2])))


class _SilentBus(_AskedBus):
    """A bus on which no controller answers."""

    def remote_parameters(self, node: str, names: Any, timeout_s: float) -> dict[str, Any]:
        raise BusError(f"No node '{node}' answers.")


def test_connect_waits_for_the_controller_unless_output_is_given() -> None:
    """Connecting to a controller that is not loaded fails; output=action does not need its node."""
    with pytest.raises(
        DriverError, match=r"is not there yet: No node 'jtc' answers\. .* say output=trajectory"
    ):
        connected("auto", _SilentBus(JTC))
    SAID.clear()
    bus, arm = connected("trajectory", _SilentBus(JTC))
    arm.write(JointCommand(np.array([0.1, 0.2])))
    assert len(bus.sent["jtc/joint_trajectory"]) == 1
    assert "not checked. No node 'jtc' answers." in SAID[0]


@pytest.mark.parametrize(
    ("output", "kind", "parameters", "cure"),
    [
        ("auto", JTC, USUAL | {"command_interfaces": ["velocity"]}, r"Set command_interfaces: \[position\]"),
        ("auto", FORWARD, {"joints": ["a", "b"], "interface_name": "effort"}, "Set interface_name: position"),
        ("auto", FORWARD, {"joints": ["b", "a"], "interface_name": "position"}, "in this order"),
        ("auto", JTC, USUAL | {"joints": ["a", "x"]}, "no joint b; it has a, x"),
        (
            "auto",
            JTC,
            USUAL | {"joints": ["a", "b", "rail"]},
            "Set its parameter allow_partial_joints_goal: true",
        ),
        ("auto", JTC, USUAL | {"interpolation_method": "none"}, "Set interpolation_method: splines"),
        ("forward", JTC, USUAL, "does not take output=forward. Set output=trajectory"),
        ("auto", "diff_drive_controller/DiffDriveController", {}, "takes no joint positions"),
    ],
)
def test_unusable_controller_error_names_the_setting(
    output: str, kind: str, parameters: Any, cure: str
) -> None:
    with pytest.raises(DriverError, match=cure):
        connected(output, _AskedBus(kind, **parameters))


def test_errors_name_missing_joints_and_silent_robots() -> None:
    bus = ScriptedBus()
    arm = Ros2ControlDriver(bus, ["a", "elbow"], **LIMITS)
    with pytest.raises(DriverError, match="joint_state_broadcaster"):
        arm.connect()
    bus.script = [(bus.now_s + 0.1, "joint_states", STATE)]
    with pytest.raises(DriverError, match="has no joint elbow; it reports finger, b, a"):
        arm.connect()
    with pytest.raises(DriverError, match="no joint positions yet"):
        arm.read()
    with pytest.raises(ConfigError, match="output='velocity'"):
        Ros2ControlDriver(bus, ["a", "b"], output="velocity", **LIMITS)
    with pytest.raises(ConfigError, match="output=action needs bus=rclpy"):
        Ros2ControlDriver(bus, ["a", "b"], output="action", **LIMITS)
    with pytest.raises(ConfigError, match="2 limits do not fit the joints a"):
        Ros2ControlDriver(bus, ["a"], **LIMITS)


TOY_LIMITS = JointLimits((-1.0, -2.0), (1.0, 2.0), (1.0, 2.0))


class Toy:
    """Two joints that reach each target at once."""

    names = ("a", "b")

    def __init__(self) -> None:
        self.at = np.zeros(2)

    def reset(self) -> None:
        self.at = np.zeros(2)

    def advance(self, dt_s: float) -> None:
        """It is there at once."""

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        return self.at, np.zeros(2)

    def command(self, target_rad: np.ndarray) -> None:
        self.at = target_rad


def test_simulated_arm_driver() -> None:
    now_s, toy = [0.0], Toy()
    arm = SimulatedArmDriver(toy, TOY_LIMITS, clock=lambda: now_s[0])
    assert isinstance(arm, Driver)
    with pytest.raises(DriverError, match="not connected"):
        arm.write(JointCommand(np.ones(2)))
    arm.connect()
    assert arm.write(JointCommand(np.ones(2))).position_rad == pytest.approx([0.01, 0.02])
    now_s[0] = 0.5
    with pytest.raises(DriverError, match="was stopped"):
        arm.write(JointCommand(np.ones(2)))
    assert arm.read().position_rad == pytest.approx([0.01, 0.02])


def test_driver_table_is_complete() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'crazyflie'"):
        make_driver("crazyfly", {})
    with pytest.raises(ConfigError, match="watchdog_s=0"):
        make_driver("ur", {"host": "127.0.0.1"}, watchdog_s=0.0)
    assert make_driver("sim_arm", {"robot": Toy(), "limits": TOY_LIMITS}).names == ("a", "b")


def test_rates_below_the_watchdog_are_refused() -> None:
    """At 10 Hz a command is due every 100 ms, but every driver stops 80 ms after the last one."""
    with pytest.raises(
        ConfigError, match=r"rate_hz=10 of the driver 'ur' is too slow: .* 80 ms .* at least 18\.75 Hz"
    ):
        make_driver("ur", {"host": "127.0.0.1", "rate_hz": 10})
    make_driver("ur", {"host": "127.0.0.1", "rate_hz": 10}, watchdog_s=0.3)
    make_driver("ur", {"host": "127.0.0.1", "rate_hz": 20})
