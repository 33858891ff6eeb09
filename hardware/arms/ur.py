"""Universal Robots arms over RTDE, by `ur_rtde`: joint targets by servoJ, which the controller follows at its
own rate.

Guards: ours (`hardware/guard/guard.py`) sends servoStop; behind it the controller's RTDE watchdog, which ends
the control program when no command has come for 1.2 x `watchdog_s`, so that the arm stops also when the cable
is pulled.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import numpy as np

from hardware.arms.bounds import Bounded, JointLimits, slowed
from hardware.arms.ur_handshake import shake_hands
from hardware.driver import WATCHDOG_S, reachable, vendor
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
# The elbow of every model stops at half a turn. Slowest model of all (UR10, UR20): 120 deg/s at the shoulder.
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
# Safety modes 1 (normal) and 2 (reduced) obey; the others do not, and each needs somebody at the robot.
SAFETY_MODES = {
    3: "is in a protective stop: remove the cause, wait 5 s, and enable the robot on its pendant",
    4: "is in recovery mode: move it back inside its limits by hand",
    5: "is in a safeguard stop: close the safeguard, then reset it",
    6: "is in an emergency stop (system): release it, then switch the robot on",
    7: "is in an emergency stop: release the button, then switch the robot on",
    8: "has violated a safety limit: restart its safety on the pendant",
    9: "has a safety fault: restart it",
}
STOP_RAD_S2 = 10.0
BACKSTOP = 1.2  # the controller's watchdog is this much slower than ours: a stop by command is gentler


class UrDriver:
    """host: of the controller. rate_hz: of commands. model: "UR5", "UR10e", ... is compared with what the
    robot says.

    max_velocity_rad_s: slower than the slowest joint of any model. lookahead_s, gain: of servoJ. state_hz: of
    states, the controller's own rate when None (125 Hz for CB3, 500 Hz for e-Series).
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
                f"servoJ takes lookahead_s in 0.03 ... 0.2 and gain in 100 ... 2000, found {lookahead_s} and "
                f"{gain}."
            )
        self._host, self._model, self._watchdog_s = host, model, watchdog_s
        self._period_s, self._lookahead_s, self._gain = 1.0 / rate_hz, lookahead_s, gain
        self._state_hz = -1.0 if state_hz is None else state_hz
        self._bounded = Bounded(self._robot, slowed(LIMITS, max_velocity_rad_s), rate_hz)
        self._receive: Any = None
        self._control: Any = None
        self._moving, self._stopped = False, False
        self._robot_s, self._received_s = -1.0, -math.inf

    @property
    def _robot(self) -> str:
        return f"the UR at {self._host}"

    def connect(self) -> None:
        receive, control = vendor("rtde_receive", "a UR arm", "ur"), vendor("rtde_control", "a UR arm", "ur")
        dashboard = vendor("dashboard_client", "a UR arm", "ur")
        self.close()
        reachable("a UR arm", self._host, RTDE_PORT)
        shake_hands(self._host, RTDE_PORT)
        try:
            if self._model is not None:
                self._check_model(dashboard.DashboardClient(self._host))
            self._receive = receive.RTDEReceiveInterface(self._host, self._state_hz, VARIABLES)
            self._first_state()
            self._control = control.RTDEControlInterface(self._host, self._state_hz)
        except RuntimeError as error:  # what the C++ library raises, whatever went wrong
            self.close()
            raise DriverError(
                f"{self._robot} answers, but cannot be controlled ({error}). Switch it to remote control on "
                "the pendant, disable EtherNet/IP, PROFINET and MODBUS units, and end other programs that "
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
        if (
            robot_s != self._robot_s
        ):  # the library does not say when a state arrived: when we first saw its stamp
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
                f"{self._robot} was stopped or is not connected. Connect to go on. Nothing was sent."
            )
        state = self.read()
        if state.fault:
            raise DriverError(f"{state.fault}. Nothing was sent.")
        target_rad = self._bounded.next(command, state.position_rad)
        try:
            if not self._moving:  # the controller counts from here; before it, nobody had promised commands
                self._control.setWatchdog(1.0 / (BACKSTOP * self._watchdog_s))
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
        # A program that the controller has ended has stopped the arm, too; asking a controller that is gone
        # never ends.
        if self._moving and self._obeys():
            with contextlib.suppress(RuntimeError):
                self._control.servoStop(STOP_RAD_S2)
        self._stopped, self._moving = self._stopped or self._moving, False

    def close(self) -> None:
        self.stop("closed")
        running = self._obeys()
        control, receive, self._control, self._receive = self._control, self._receive, None, None
        if control is not None:
            with contextlib.suppress(RuntimeError):
                if running:  # stopping one that has ended waits for two seconds
                    control.stopScript()
            control.disconnect()
        if receive is not None:
            receive.disconnect()
        self._stopped = False
        self._bounded.reset()

    def _obeys(self) -> bool:
        parts = (self._receive, self._control)
        return all(part is not None and part.isConnected() for part in parts) and bool(
            self._control.isProgramRunning()
        )

    def _check_model(self, dashboard: Any) -> None:
        dashboard.connect()
        found = dashboard.getRobotModel().strip()
        dashboard.disconnect()
        wanted = self._model or ""
        # An e-Series controller says "UR5" of a UR5e, so the letter is not compared.
        if found.upper().rstrip("E") != wanted.upper().rstrip("E"):
            raise DriverError(
                f"At {self._host} is a {found}, expected a {wanted}. Is the address that of another robot?"
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
            f"{self._robot} accepts a connection but tells no joint positions. Restart its controller."
        )

    def _fault(self) -> str:
        safety, mode = self._receive.getSafetyMode(), self._receive.getRobotMode()
        if safety in SAFETY_MODES:
            return f"{self._robot} {SAFETY_MODES[safety]}"
        if mode != RUNNING:
            return f"{self._robot} is {ROBOT_MODES.get(mode, f'in mode {mode}')}, expected: running"
        return ""

    def _refused(self) -> str:
        fault = (
            self._fault()
            or f"{self._robot} no longer runs our control program (was it stopped on the pendant?)"
        )
        return f"{fault}. Nothing was sent. Connect again to go on."

    def _lost(self) -> str:
        return (
            f"The connection to {self._robot} is lost; its own watchdog stops it. See that it rests, check "
            "cable and switch, then connect again."
        )
