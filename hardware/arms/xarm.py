"""Driver of UFACTORY xArms by their SDK: joint targets in servo mode (1), executed at once at full speed.

Watchdog: the guard process (`hardware/guard/guard.py`) stops the motion. The arm itself has no watchdog: if
the guard fails, a controller in servo mode holds its last target, which is at most one limited step ahead.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from typing import Any

import numpy as np

from hardware.arms.bounds import CommandLimiter, JointLimits, with_max_velocity
from hardware.driver import WATCHDOG_S, check_reachable, import_vendor
from hardware.states import ArmState, JointCommand
from robo_rl.core.errors import ConfigError, DriverError

SERVO_MODE, READY, STOP = 1, 0, 4
HALTED = (4, 5)  # states in which the arm accepts no motion
VELOCITY_RAD_S = math.pi
LOST_S = 0.5  # age of the last report after which the connection counts as lost; reports come at 100 Hz
# Meanings of the SDK's return codes.
ANSWERS = {
    -8: "the target is outside of its joint limits",
    -2: "it is not ready: its motors are off, or it was stopped",
    -1: "it is not connected",
    1: "it reports an error",
    3: "it did not answer in time",
    9: "it is stopped, paused or not in servo mode",
}


class XarmDriver:
    """Driver of an xArm; see `hardware.driver.Driver`.

    host: IPv4 address of the control box. joints: 5, 6 or 7; `connect` compares the number with the arm.
    rate_hz: of commands. max_velocity_rad_s: velocity limit of every joint, if lower than pi rad/s. Raises
    ConfigError for another number of joints.
    """

    def __init__(
        self,
        host: str,
        joints: int = 7,
        rate_hz: float = 100.0,
        max_velocity_rad_s: float | None = None,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        if joints not in (5, 6, 7):
            raise ConfigError(f"joints={joints}: expected 5, 6 or 7, the numbers of joints of an xArm.")
        self.names = tuple(f"joint{i}" for i in range(1, joints + 1))
        self._host, self._joints, self._rate_hz, self._max = host, joints, rate_hz, max_velocity_rad_s
        self._limiter: CommandLimiter | None = None
        self._api: Any = None
        self._moving, self._stopped = False, False
        self._angles_rad, self._received_s, self._fault_text = np.zeros(joints), -math.inf, ""

    @property
    def _robot(self) -> str:
        return f"the xArm at {self._host}"

    def connect(self) -> None:
        wrapper, config = (
            import_vendor("xarm.wrapper", "an xArm", "xarm"),
            import_vendor("xarm.core.config.x_config", "an xArm", "xarm"),
        )
        self.close()
        check_reachable("an xArm", self._host, config.XCONF.SocketConf.TCP_CONTROL_PORT)
        default_s = socket.getdefaulttimeout()
        try:
            api = wrapper.XArmAPI(self._host, is_radian=True, report_type="real", do_not_open=True)
            self._api = api
            api.register_report_callback(self._reported, report_joints=True, report_cartesian=False)
            api.connect()
            self._check(api)
            for what in (api.motion_enable(True), api.set_mode(SERVO_MODE), api.set_state(READY)):
                if what != 0:
                    raise DriverError(self._refused(what))
            self._limiter = self._limiter_of(config.XCONF.Robot, api)
            self._first_report()
        except DriverError:
            self.close()
            raise
        except Exception as error:  # the SDK raises no class of its own
            self.close()
            raise DriverError(
                f"{self._robot} answers, but cannot be controlled ({error}). Restart its control box."
            ) from error
        finally:
            socket.setdefaulttimeout(default_s)  # the SDK changes it for the whole process

    def read(self) -> ArmState:
        api = self._api
        # The SDK tries to reconnect for seconds before it reports a lost connection.
        if api is None or not api.connected or time.monotonic() - self._received_s > LOST_S:
            raise DriverError(
                f"The connection to {self._robot} is lost; it holds its last target. Check cable and control "
                "box, then connect again."
            )
        if api.state in HALTED and not self._stopped:
            self._fault_text = self._fault_text or self._why(api)
        else:
            self._fault_text = ""
        return ArmState(self._received_s, self._angles_rad, np.zeros(0), self._fault_text)

    def write(self, command: JointCommand) -> JointCommand:
        if self._limiter is None or self._stopped:
            raise DriverError(
                f"{self._robot} was stopped or is not connected. Nothing was sent. Connect, then try again."
            )
        state = self.read()
        if state.fault:
            raise DriverError(f"{state.fault}. Nothing was sent.")
        target_rad = self._limiter.next(command, state.position_rad)
        self._moving = True
        answer = self._api.set_servo_angle_j(target_rad.tolist(), is_radian=True)
        if answer != 0:
            raise DriverError(self._refused(answer))
        return JointCommand(target_rad)

    def stop(self, reason: str) -> None:
        if self._moving and self._api is not None and self._api.connected:
            self._stopped = True
            self._api.set_state(STOP)
        self._stopped, self._moving = self._stopped or self._moving, False

    def close(self) -> None:
        self.stop("closed")
        api, self._api = self._api, None
        if api is not None:
            with contextlib.suppress(Exception):  # a connection that was never open raises various classes
                api.disconnect()
        self._limiter, self._stopped, self._fault_text, self._received_s = None, False, "", -math.inf

    def _reported(self, report: dict[str, Any]) -> None:
        """Store a report.

        Called in the SDK's thread; readers see whole arrays, because it replaces a reference.
        """
        self._angles_rad, self._received_s = (
            np.array(report["joints"][: self._joints], float),
            time.monotonic(),
        )

    def _check(self, api: Any) -> None:
        if api.axis != self._joints:
            raise DriverError(
                f"{self._robot} has {api.axis} joints, expected {self._joints}. Check the address and "
                "joints=."
            )
        api.get_err_warn_code()
        if api.error_code:
            raise DriverError(f"{self._why(api)}. Then connect again.")

    def _limiter_of(self, robots: Any, api: Any) -> CommandLimiter:
        rows = robots.JOINT_LIMITS.get(api.axis, {}).get(api.device_type)
        if rows is None:
            raise DriverError(
                f"The installed SDK has no joint limits for {self._robot}. Update xarm-python-sdk."
            )
        low, high = zip(*rows[: self._joints], strict=True)
        limits = JointLimits(tuple(low), tuple(high), (VELOCITY_RAD_S,) * self._joints)
        return CommandLimiter(self._robot, with_max_velocity(limits, self._max), self._rate_hz)

    def _first_report(self) -> None:
        deadline_s = time.monotonic() + 3.0
        while self._received_s == -math.inf or self._api.mode != SERVO_MODE or self._api.state in HALTED:
            if time.monotonic() > deadline_s:
                silent = self._received_s == -math.inf
                problem = "sends no joint positions" if silent else "does not enter servo mode"
                raise DriverError(
                    f"{self._robot} {problem}. Clear its errors, enable it in UFACTORY Studio, or restart it."
                )
            time.sleep(0.005)

    def _why(self, api: Any) -> str:
        """Why the arm halted, with the manual's text for its error code."""
        api.get_err_warn_code()
        if not api.error_code:
            return (
                f"{self._robot} was stopped (by its button or another program): enable it, then connect again"
            )
        codes = import_vendor("xarm.core.config.x_code", "an xArm", "xarm").ControllerErrorCodeMap
        title = codes.get(api.error_code, {}).get("en", {}).get("title", "see its manual")
        return (
            f"{self._robot} stopped with error {api.error_code} ({title}): remove the cause, clear the error "
            "in UFACTORY Studio, then connect again"
        )

    def _refused(self, answer: int) -> str:
        return (
            f"{self._robot} refused the command: {ANSWERS.get(answer, f'its SDK returned {answer}')}. "
            "Nothing was sent. Check the message in UFACTORY Studio, then connect again."
        )
