"""Driver of an arm of ros2_control, over the bus: trajectories, forward commands or FollowJointTrajectory.

Watchdog: a timer on the bus brings the arm to rest when no command has come for `watchdog_s`. If this process
dies, the controller plays the rest of the last trajectory, which ends at rest two periods after it was sent.
A forward controller keeps the last command, in both cases. A state that is not finite counts as missing. Do
not use this driver with a velocity controller; with rclpy it checks that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from hardware.arms.bounds import CommandLimiter, JointLimits, check_names
from hardware.arms.controller_check import PARAMETERS, ControllerFacts, Output, controller_facts
from hardware.arms.controller_output import ControllerOutput, ForwardOutput, StreamedOutput
from hardware.arms.waypoint_stream import WaypointStream
from hardware.bus.protocol import ActionBus, Bus, ControllerBus, Profile, RemoteParameterBus
from hardware.driver import WATCHDOG_S
from hardware.messages import Floats, JointState, JointTrajectory
from hardware.states import ArmState, JointCommand
from robo_rl.core.errors import BusError, ConfigError, DriverError

OUTPUTS = ("auto", "trajectory", "forward", "action")
MANAGER = "controller_manager"
FIRST_STATE_S = 3.0
STATE_AGE_S = 0.5  # largest age of a state with which the arm is commanded
ASK_S = 2.0  # time for a controller to answer what its parameters are
CHECKS = 10.0  # checks of the command's age within watchdog_s
GOAL_HZ = 10.0  # most goals per second of output=action, each of which replaces the one before


class Ros2ControlDriver:
    """Driver of an arm behind a ros2_control controller; see `hardware.driver.Driver`.

    joints: names in the order of commands; for a forward_command_controller, the order of its parameter
    `joints`. low_rad, high_rad, velocity_rad_s: limits from the robot's description, one per joint.
    controller: name, such as "joint_trajectory_controller". output: "trajectory" on its topic
    joint_trajectory, "forward" on its topic commands, "action" to its FollowJointTrajectory (rclpy only), or
    "auto": what its parameters say, and trajectories where they cannot be asked (without rclpy). rate_hz: of
    commands. say: called with what the controller should be set to. `connect` spins the bus until the first
    state, so call it before another loop does. Raises ConfigError for an unknown output or for limits that do
    not fit the joints.
    """

    def __init__(
        self,
        bus: Bus,
        joints: Sequence[str],
        low_rad: Sequence[float],
        high_rad: Sequence[float],
        velocity_rad_s: Sequence[float],
        controller: str = "joint_trajectory_controller",
        output: str = "auto",
        rate_hz: float = 100.0,
        watchdog_s: float = WATCHDOG_S,
        say: Callable[[str], None] = print,
    ) -> None:
        if output not in OUTPUTS:
            raise ConfigError(f"output='{output}' is unknown; expected one of {', '.join(OUTPUTS)}.")
        self._limits = JointLimits(tuple(low_rad), tuple(high_rad), tuple(velocity_rad_s))
        if not len(joints) == len(set(joints)) == len(self._limits.low_rad):
            raise ConfigError(
                f"{len(self._limits.low_rad)} limits do not fit the joints {', '.join(joints)}: expected one "
                "per joint, and different names."
            )
        if output == "action" and not isinstance(bus, ActionBus):
            raise ConfigError("output=action needs bus=rclpy: actions need ROS.")
        self.names, self._controller, self._output = tuple(joints), controller, output
        self._bus, self._period_s, self._watchdog_s, self._say = bus, 1.0 / rate_hz, watchdog_s, say
        self._robot = f"the arm behind '{controller}'"
        self._limiter = CommandLimiter(self._robot, self._limits, rate_hz, bus.now)
        self._sender: ControllerOutput | None = None  # once it is known what the controller takes
        self._state: ArmState | None = None
        self._other_joints: tuple[str, ...] = ()  # joints of the newest message without this arm's
        self._not_finite: tuple[str, ...] = ()  # joints without a finite position in the newest state
        self._connected, self._stopped = False, False
        self._deadline_s: float | None = None
        self._stop_cause = "it was stopped"
        self._inactive, self._lost = "", ""  # why the controller follows nothing: now, and until connect
        bus.subscribe("joint_states", JointState, Profile.STATE, self._on_state)
        bus.timer(watchdog_s / CHECKS, self._on_timer)
        if isinstance(bus, ControllerBus):
            bus.watch_controllers(MANAGER, self._on_controllers)

    def connect(self) -> None:
        if self._inactive:
            raise DriverError(f"{self._robot}: {self._inactive}.")
        self._lost = ""
        self._stopped, self._deadline_s = False, None
        self._limiter.reset()
        if not self.receives_states:
            self._wait_for_state()
        if self._sender is None:
            self._sender = self._made()
        self._sender.reset()
        self._connected = True

    @property
    def fault(self) -> str:
        """Why the controller takes nothing, until `connect`; empty while it does."""
        return self._lost or self._inactive or ("" if self._sender is None else self._sender.fault)

    @property
    def refusal(self) -> str:
        """Sentence with the fault; empty without one."""
        again = "" if self._inactive and not self._lost else " Then connect again."
        return f"{self._robot}: {self.fault}.{again}" if self.fault else ""

    @property
    def stopped(self) -> bool:
        """True after a stop, also by the watchdog, until `connect`."""
        return self._stopped

    @property
    def receives_states(self) -> bool:
        """True while states of the arm come, so that `connect` returns without spinning the bus."""
        return self._state is not None and self._bus.now() - self._state.received_s <= STATE_AGE_S

    @property
    def missing(self) -> str:
        """What does not come while `receives_states` is false, in words."""
        return f"finite joint_states of {', '.join(self._not_finite)}" if self._not_finite else "joint_states"

    def read(self) -> ArmState:
        if self._state is None:
            raise DriverError(f"{self._robot} has sent no joint positions yet. Call connect() first.")
        return self._state

    def write(self, command: JointCommand) -> JointCommand:
        if self.refusal:
            raise DriverError(self.refusal)
        if not self._connected or self._stopped or self._sender is None:
            raise DriverError(
                f"{self._robot}: {self._stop_cause}, or is not connected. Nothing was sent. Connect, then "
                "try again."
            )
        if not self.receives_states:
            self.stop("no joint_states came")
            raise DriverError(
                f"{self._robot}: no {self.missing} came for {STATE_AGE_S:g} s. Nothing was sent."
            )
        measured_rad = self.read().position_rad
        target_rad = self._limiter.next(command, measured_rad)
        self._sender.send(target_rad, measured_rad, self._bus.now())
        self._deadline_s = self._bus.now() + self._watchdog_s
        return JointCommand(target_rad)

    def stop(self, reason: str) -> None:
        if self._deadline_s is not None and self._sender is not None:
            self._stopped, self._deadline_s, self._stop_cause = True, None, f"it was stopped ({reason})"
            self._sender.rest(self.read().position_rad, self._bus.now())

    def close(self) -> None:
        self.stop("closed")
        self._connected = False

    def _wait_for_state(self) -> None:
        self._state, self._other_joints, self._not_finite = None, (), ()
        end_s = self._bus.now() + FIRST_STATE_S
        self._bus.spin(lambda: self._state is not None or self._bus.now() >= end_s)
        if self._state is None:
            if self._other_joints:
                check_names(self._robot, self._other_joints, self.names)
            raise DriverError(
                f"No {self.missing} came within {FIRST_STATE_S:g} s. Check that the joint_state_broadcaster "
                "is active, in this namespace and this ROS_DOMAIN_ID."
            )

    def _on_state(self, message: JointState, received_s: float) -> None:
        if not set(self.names) <= set(message.names):
            self._other_joints = message.names  # for example a gripper that publishes on the same topic
            return
        order = check_names(self._robot, message.names, self.names)
        position_rad, velocity_rad_s = message.position_rad[order], np.zeros(0)
        finite = np.isfinite(position_rad).tolist()
        self._not_finite = tuple(name for name, known in zip(self.names, finite, strict=True) if not known)
        if self._not_finite:
            return  # such a state counts as missing
        if message.velocity_rad_s.size and np.isfinite(message.velocity_rad_s[order]).all():
            velocity_rad_s = message.velocity_rad_s[order]
        self._state = ArmState(received_s, position_rad, velocity_rad_s)

    def _on_controllers(self, states: dict[str, str]) -> None:
        """Stop when the controller is not active: activated later, it would jump to the newest command."""
        state = states.get(self._controller, "active")
        start = f"Activate it: ros2 control switch_controllers --activate {self._controller}"
        if state != "inactive":
            start = f"Start it: ros2 run controller_manager spawner {self._controller}"
        self._inactive = "" if state == "active" else f"the controller is {state}. {start}"
        if self._inactive and self._deadline_s is not None:
            self._lost = self._inactive
            self.stop("its controller is not active")

    def _on_timer(self) -> None:
        if self._deadline_s is not None and self._bus.now() > self._deadline_s:
            self.stop(f"no command came for {1e3 * self._watchdog_s:.0f} ms")

    def _made(self) -> ControllerOutput:
        """The sender for what the controller takes, by its parameters where they can be asked."""
        facts = self._facts()
        if facts.advice:
            self._say(facts.advice)
        if facts.output == "forward":
            floats = self._bus.publisher(f"{self._controller}/commands", Floats, Profile.COMMAND)
            return ForwardOutput(lambda target_rad: floats(Floats(target_rad)))
        period_s = max(self._period_s, 1.0 / GOAL_HZ) if facts.output == "action" else self._period_s
        stream = WaypointStream(period_s, self._limits, facts.joins)
        if facts.output == "action":
            assert isinstance(self._bus, ActionBus)
            action = self._bus.trajectory_action(f"{self._controller}/follow_joint_trajectory")
            return StreamedOutput(self.names, stream, action.send, period_s, action)
        topic = f"{self._controller}/joint_trajectory"
        publish = self._bus.publisher(topic, JointTrajectory, Profile.COMMAND)
        return StreamedOutput(self.names, stream, publish)

    def _facts(self) -> ControllerFacts:
        usual = ControllerFacts("trajectory" if self._output == "auto" else cast(Output, self._output))
        if not isinstance(self._bus, RemoteParameterBus):
            return usual
        try:
            found = self._bus.remote_parameters(self._controller, PARAMETERS, ASK_S)
        except BusError as error:
            if self._output == "auto":
                raise DriverError(
                    f"The controller '{self._controller}' is not there yet: {error} For an arm whose "
                    "controller has no node of its own, say output=trajectory, forward or action."
                ) from error
            self._say(f"{self._robot}: its parameters are not known, and not checked. {error}")
            return usual
        return controller_facts(self._controller, self._kind(), found, self.names, self._output)

    def _kind(self) -> str:
        """Type of the controller by the controller manager; empty where it does not answer."""
        assert isinstance(self._bus, RemoteParameterBus)
        key = f"{self._controller}.type"
        try:
            return str(self._bus.remote_parameters(MANAGER, (key,), ASK_S).get(key, ""))
        except BusError:
            return ""
