"""Driver of Universal Robots arms over RTDE (`ur_rtde`), with joint targets by servoJ.

Watchdogs: the guard process (`hardware/guard/guard.py`) sends servoStop. Should it fail, the controller's
RTDE watchdog ends the control program 1.2 x `watchdog_s` after the last command, so the arm also stops when
the cable is pulled.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import numpy as np

from hardware.arms.bounds import CommandLimiter, JointLimits, with_max_velocity
from hardware.arms.ur_handshake import shake_hands
from hardware.driver import WATCHDOG_S, check_reachable, import_vendor
from hardware.states import ArmState, JointCommand
from robo_rl.core.errors import ConfigError, DriverError

JOINTS = (
    "shoulder_pan_joint",
    "shoulder_lift_joint",
    "elbow_joint",
    "wrist_1_joint",
    "wrist_2_joint",
    "wrist_3_joint",
)
RTDE_PORT = 30004
TURN = 2.0 * math.pi
# Limits that hold for every model: the elbow turns half a turn either way, and the shoulder of the slowest
# models (UR10, UR20) turns at 120 deg/s.
LIMITS = JointLimits(
    (-TURN, -TURN, -math.pi, -TURN, -TURN, -TURN),
    (TURN, TURN, math.pi, TURN, TURN, TURN),
    (2.0 * math.pi / 3.0,) * 6,
)
VARIABLES = [
    "timestamp",
    "actual_q",
    "actual_qd",
    "robot_mode",
    "safety_mode",
    "safety_status_bits",
    "speed_scaling",
    "target_speed_fraction",
    "runtime_state",
    "robot_status_bits",
]
RUNNING = 7  # robot mode
ROBOT_MODES = {
    -1: "without controller",
    0: "disconnected",
    1: "waiting for a safety confirmation",
    2: "booting",
    3: "switched off",
    4: "powering on",
    5: "idle: release its brakes",
    6: "being moved by hand",
    8: "updating its firmware",
}
FOLLOWING = (1, 2)  # safety modes normal and reduced, in which the arm follows commands
# The other safety modes need a person at the robot.
SAFETY_MODES = {
    3: "is in a protective stop: remove the cause, wait 5 s, and enable the robot on its pendant",
    4: "is in recovery mode: move it back inside its limits by hand",
    5: "is in a safeguard stop: close the safeguard, then reset it",
    6: "is in an emergency stop (system): release it, then switch the robot on",
    7: "is in an emergency stop: release the button, then switch the robot on",
    8: "has violated a safety limit: restart its safety on the pendant",
    9: "has a safety fault: restart it",
    10: "waits for its joint ids to be validated: confirm them on the pendant",
    11: "has an undefined safety mode: look at its pendant",
    12: "is in an automatic-mode safeguard stop: close the safeguard, then reset it",
    13: "is in a three-position-switch stop: hold the enabling switch in its middle position",
}
STOP_RAD_S2 = 10.0
# Time of the controller's watchdog relative to ours. It fires later, because servoStop brakes more gently.
CONTROLLER_WATCHDOG = 1.2


class UrDriver:
    """Driver of a UR arm; see `hardware.driver.Driver`.

    host: address of the controller. rate_hz: of commands. model: "UR5", "UR10e", ...; `connect` compares it
    with the model that the robot reports. max_velocity_rad_s: velocity limit of every joint, if lower than
    the device's. lookahead_s, gain: parameters of servoJ. state_hz: rate of states; None: the controller's
    own (125 Hz for CB3, 500 Hz for e-Series). Raises ConfigError for values outside the ranges of servoJ.
    """

    names = JOINTS

    def __init__(
        self,
        host: str,
        rate_hz: float = 100.0,
        model: str | None = None,
        max_velocity_rad_s: float | None = None,
        lookahead_s: float = 0.1,
        gain: float = 300.0,
        state_hz: float | None = None,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        if not (0.03 <= lookahead_s <= 0.2 and 100.0 <= gain <= 2000.0):
            raise ConfigError(
                f"lookahead_s={lookahead_s}, gain={gain}: servoJ expects lookahead_s from 0.03 to 0.2 and "
                "gain from 100 to 2000."
            )
        self._host, self._model, self._watchdog_s = host, model, watchdog_s
        self._period_s, self._lookahead_s, self._gain = 1.0 / rate_hz, lookahead_s, gain
        self._state_hz = -1.0 if state_hz is None else state_hz
        self._limiter = CommandLimiter(self._robot, with_max_velocity(LIMITS, max_velocity_rad_s), rate_hz)
        self._receive: Any = None
        self._control: Any = None
        self._moving, self._stopped = False, False
        self._robot_s, self._received_s = -1.0, -math.inf

    @property
    def _robot(self) -> str:
        return f"the UR at {self._host}"

    def connect(self) -> None:
        receive, control = (
            import_vendor("rtde_receive", "a UR arm", "ur"),
            import_vendor("rtde_control", "a UR arm", "ur"),
        )
        dashboard = import_vendor("dashboard_client", "a UR arm", "ur")
        self.close()
        check_reachable("a UR arm", self._host, RTDE_PORT)
        shake_hands(self._host, RTDE_PORT)
        try:
            if self._model is not None:
                self._check_model(dashboard.DashboardClient(self._host))
            self._receive = receive.RTDEReceiveInterface(self._host, self._state_hz, VARIABLES)
            self._first_state()
            self._control = control.RTDEControlInterface(self._host, self._state_hz)
        except RuntimeError as error:  # the C++ library raises no other class
            self.close()
            raise DriverError(
                f"{self._robot} answers, but cannot be controlled ({error}). Switch it to remote control on "
                "the pendant, disable EtherNet/IP, PROFINET and MODBUS units, and close other programs that "
                "control it."
            ) from error
        except DriverError:
            self.close()
            raise

    def read(self) -> ArmState:
        receive = self._receive
        if receive is None or not receive.isConnected():
            raise DriverError(self._lost())
        robot_s = receive.getTimestamp()
        # The library does not report when a state arrived, so the time of its first read is taken.
        if robot_s != self._robot_s:
            self._robot_s, self._received_s = robot_s, time.monotonic()
        scaling = receive.getSpeedScaling() * receive.getTargetSpeedFraction()
        return ArmState(
            self._received_s,
            np.array(receive.getActualQ()),
            np.array(receive.getActualQd()),
            self._fault(),
            scaling,
        )

    def write(self, command: JointCommand) -> JointCommand:
        if self._control is None or self._stopped:
            raise DriverError(
                f"{self._robot} was stopped or is not connected. Nothing was sent. Connect, then try again."
            )
        state = self.read()
        if state.fault:
            raise DriverError(f"{state.fault}. Nothing was sent.")
        target_rad = self._limiter.next(command, state.position_rad)
        try:
            if not self._moving:  # set here because the controller's watchdog runs from this call on
                self._control.setWatchdog(1.0 / (CONTROLLER_WATCHDOG * self._watchdog_s))
            self._moving = True
            sent = self._control.servoJ(
                target_rad.tolist(), 0.0, 0.0, self._period_s, self._lookahead_s, self._gain
            )
        except RuntimeError as error:
            raise DriverError(f"{self._lost()} ({error})") from error
        if not sent:
            raise DriverError(self._refused())
        return JointCommand(target_rad)

    def stop(self, reason: str) -> None:
        # If the controller has ended the program, the arm has stopped already. Calls to a controller that is
        # not connected never return.
        if self._moving and self._is_controlled():
            with contextlib.suppress(RuntimeError):
                self._control.servoStop(STOP_RAD_S2)
        self._stopped, self._moving = self._stopped or self._moving, False

    def close(self) -> None:
        self.stop("closed")
        running = self._is_controlled()
        control, receive, self._control, self._receive = self._control, self._receive, None, None
        if control is not None:
            with contextlib.suppress(RuntimeError):
                if running:  # stopScript waits for two seconds if the program has already ended
                    control.stopScript()
            control.disconnect()
        if receive is not None:
            receive.disconnect()
        self._stopped = False
        self._limiter.reset()

    def _is_controlled(self) -> bool:
        parts = (self._receive, self._control)
        return all(part is not None and part.isConnected() for part in parts) and bool(
            self._control.isProgramRunning()
        )

    def _check_model(self, dashboard: Any) -> None:
        dashboard.connect()
        found = dashboard.getRobotModel().strip()
        dashboard.disconnect()
        wanted = self._model or ""
        # An e-Series controller reports "UR5" for a UR5e, so the letter is not compared.
        if found.upper().rstrip("E") != wanted.upper().rstrip("E"):
            raise DriverError(
                f"The robot at {self._host} is a {found}, expected a {wanted}. Check the address and model=."
            )

    def _first_state(self) -> None:
        deadline_s = time.monotonic() + 2.0
        while time.monotonic() < deadline_s:
            if self._receive.getTimestamp() > 0.0 and len(self._receive.getActualQ()) == len(JOINTS):
                if fault := self._fault():
                    raise DriverError(f"{fault}. Then connect again.")
                return
            time.sleep(0.005)
        raise DriverError(
            f"{self._robot} accepts a connection but sends no joint positions. Restart its controller."
        )

    def _fault(self) -> str:
        safety, mode = self._receive.getSafetyMode(), self._receive.getRobotMode()
        if safety not in FOLLOWING:
            fault = f"is in the unknown safety mode {safety}: look at its pendant"
            return f"{self._robot} {SAFETY_MODES.get(safety, fault)}"
        if mode != RUNNING:
            return f"{self._robot} is {ROBOT_MODES.get(mode, f'in mode {mode}')}, expected: running"
        return ""

    def _refused(self) -> str:
        fault = (
            self._fault()
            or f"{self._robot} no longer runs our control program (it may have been stopped on the pendant)"
        )
        return f"{fault}. Nothing was sent. Connect again, then try again."

    def _lost(self) -> str:
        return (
            f"The connection to {self._robot} is lost; its own watchdog stops it. Make sure that it is at "
            "rest, check cable and switch, then connect again."
        )
