"""Driver of the Crazyflie over its radio (cflib): body rates, attitudes, positions, hover, full states.

Watchdogs: the guard process (`hardware/guard/guard.py`) lets the craft's high-level commander land it. Should
it fail, the firmware levels the craft 0.5 s after the last setpoint and stops its motors after 2 s, or when
it has tumbled. After a setpoint that switched the motors off, they stay off.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hardware.driver import WATCHDOG_S
from hardware.quads.bounds import QuadLimits, bounded, motors_off
from hardware.quads.crazyflie.firmware import (
    ARMED,
    FLYING,
    PID,
    check_after_stop,
    check_unlocked,
    landing_duration_s,
    stands,
)
from hardware.quads.crazyflie.link import CrazyflieLink
from hardware.quads.crazyflie.packets import send_setpoint
from hardware.states import Attitude, BodyRates, QuadState, Setpoint
from robo_rl.core.errors import ConfigError, DriverError

LOST_S = 1.0  # age of the state after which the link counts as lost
STAB_MODES = {BodyRates: 0, Attitude: 1}  # values of flightmode.stabModeRoll and stabModePitch


class CrazyflieDriver:
    """Driver of a Crazyflie over its radio; see `hardware.driver.Driver`. Connect it on the ground.

    uri: in cflib's notation, such as radio://0/80/2M/E7E7E7E7E7. arm: arm the motors at the first setpoint,
    if the firmware requires it. cache: folder for tables of contents, which makes later connections faster.
    max_rate_rad_s, max_tilt_rad, max_speed_m_s, thrust_low, thrust_high: see `QuadLimits`. Raises ConfigError
    for a uri without "://".
    """

    names: tuple[str, ...] = ()

    def __init__(
        self,
        uri: str,
        arm: bool = False,
        cache: str | None = None,
        max_rate_rad_s: float = 6.0,
        max_tilt_rad: float = 0.6,
        max_speed_m_s: float = 1.5,
        thrust_low: float = 0.0,
        thrust_high: float = 0.9,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        if "://" not in uri:
            raise ConfigError(f"uri='{uri}' is no link; expected a URI such as radio://0/80/2M/E7E7E7E7E7.")
        self._limits = QuadLimits(max_rate_rad_s, max_tilt_rad, max_speed_m_s, thrust_low, thrust_high)
        self._uri, self._arm, self._cache = uri, arm, cache
        self._robot = f"the Crazyflie at {uri}"
        self._link: CrazyflieLink | None = None
        self._unlocked, self._wrote, self._stopped, self._off = False, False, False, False
        self._stab_mode: int | None = None
        self._landed_s = -math.inf

    def connect(self) -> None:
        self.close()
        self._link = link = CrazyflieLink(self._uri, self._cache)
        try:
            link.open()
            if fault := link.fault():
                raise DriverError(f"{fault}. Then connect again.")
        except DriverError:
            self.close()
            raise
        if not link.info & FLYING:
            # The firmware locks the thrust until it gets a thrust of 0. In the air, that would stop the
            # motors.
            link.cf.commander.send_setpoint(0.0, 0.0, 0.0, 0)
            link.cf.commander.send_notify_setpoint_stop()
            self._unlocked = True

    def read(self) -> QuadState:
        link = self._open()
        assert link.state is not None
        data, received_s = link.state
        if link.lost or time.monotonic() - received_s > LOST_S:
            raise DriverError(
                f"The link to {self._robot} is lost ({link.lost or f'silent for {LOST_S:g} s'}). Without "
                "setpoints it levels after 0.5 s and stops its motors after 2 s. Connect again when it is on "
                "the ground."
            )
        v = {key.split(".")[1]: value for key, value in data.items()}
        return QuadState(
            received_s,
            np.array([v["x"], v["y"], v["z"]]) / 1e3,
            link.quaternion(int(v["quat"])),
            np.array([v["vx"], v["vy"], v["vz"]]) / 1e3,
            np.array([v["rateRoll"], -v["ratePitch"], v["rateYaw"]])
            / 1e3,  # the firmware's pitch is positive nose up
            battery_v=link.battery_v,
            armed=bool(link.info & ARMED),
            flying=bool(link.info & FLYING),
            controlled=self._wrote and not self._stopped and bool(link.info & ARMED),
            fault=link.fault(),
        )

    def write(self, command: Setpoint) -> Setpoint:
        link = self._open()
        check_after_stop(self._stopped, self._robot)
        setpoint = bounded(command, self._limits, self._robot)
        state = self.read()
        if state.fault:
            raise DriverError(f"{state.fault}. Nothing was sent.")
        if isinstance(setpoint, (BodyRates, Attitude)):
            self._prepare(link, STAB_MODES[type(setpoint)])
        if self._arm and not self._wrote and not state.armed:
            link.cf.supervisor.send_arming_request(True)
        self._wrote, self._off = True, motors_off(setpoint)
        return send_setpoint(link.cf.commander, setpoint, self._robot)

    def stop(self, reason: str) -> None:
        if self._link is None or self._stopped or not self._wrote:
            return
        self._stopped = True
        height_m = 0.5 if self._link.state is None else float(self._link.state[0]["stateEstimateZ.z"]) / 1e3
        if self._off or stands(self._link.info, height_m):
            self._link.cf.commander.send_stop_setpoint()
            return
        duration_s = landing_duration_s(height_m)
        # Low-level setpoints have priority over the high-level commander until this notification.
        self._link.cf.commander.send_notify_setpoint_stop()
        self._link.cf.high_level_commander.land(0.0, duration_s, yaw=None)
        self._landed_s = time.monotonic() + duration_s

    def close(self) -> None:
        link = self._link
        if link is not None:
            self.stop("closed")
            self._wait_until_down(link)
            link.close()
        self._link = None
        self._unlocked, self._wrote, self._stopped, self._off = False, False, False, False
        self._stab_mode, self._landed_s = None, -math.inf

    def _open(self) -> CrazyflieLink:
        if self._link is None or self._link.state is None:
            raise DriverError(f"{self._robot} is not connected. Call connect() first.")
        return self._link

    def _prepare(self, link: CrazyflieLink, stab_mode: int) -> None:
        """Before the first setpoint of a type, set the parameters that define its meaning.

        Raises DriverError while the thrust is locked, or for a controller that does not follow body rates.
        """
        check_unlocked(self._unlocked, self._robot)
        if stab_mode == self._stab_mode:
            return
        controller = link.parameter("stabilizer.controller")
        if stab_mode == STAB_MODES[BodyRates] and controller not in (None, PID):
            raise DriverError(
                f"stabilizer.controller of {self._robot} is {controller}; only {PID} (PID) follows body "
                f"rates. Set it to {PID}, or send an attitude or a position. Nothing was sent."
            )
        for name in ("flightmode.stabModeRoll", "flightmode.stabModePitch"):
            link.set_parameter(name, stab_mode)
        self._stab_mode = stab_mode

    def _wait_until_down(self, link: CrazyflieLink) -> None:
        """Wait until a requested landing is over, then stop the motors."""
        if self._landed_s == -math.inf:
            return
        while time.monotonic() < self._landed_s + 0.3 and not link.lost and link.info & (FLYING | ARMED):
            time.sleep(0.05)
        if not link.lost:
            link.cf.high_level_commander.stop()
            time.sleep(0.05)  # cflib sends in its own threads
