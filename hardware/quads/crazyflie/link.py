"""Connection to a Crazyflie: its state in one log packet at 100 Hz, its battery and supervisor at 10 Hz."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

import numpy as np

from hardware.driver import import_vendor
from hardware.quads.crazyflie.firmware import fault_of
from robo_rl.core.errors import DriverError

# Variables of stateEstimateZ: 22 of the 26 bytes of a log packet.
STATE = ("x", "y", "z", "vx", "vy", "vz", "quat", "rateRoll", "ratePitch", "rateYaw")
STATE_MS, STATUS_MS = 10, 100  # periods of the log packets
CONNECT_S = 30.0  # includes the tables of contents and the parameters


class CrazyflieLink:
    """One connection to a Crazyflie.

    uri, cache: see `CrazyflieDriver`. state: the newest log packet and its local monotonic time of receipt;
    None before the first. info: supervisor.info. lost: why the link was lost; empty while it is open.
    Callbacks run in a thread of cflib; each replaces a whole record.
    """

    def __init__(self, uri: str, cache: str | None) -> None:
        self._crtp = import_vendor("cflib.crtp", "a Crazyflie", "crazyflie")
        logging.getLogger("cflib").addHandler(logging.NullHandler())  # our errors report what matters
        if not self._crtp.CLASSES:
            self._crtp.init_drivers()
        self.robot = f"the Crazyflie at {uri}"
        self._uri = uri
        self.cf: Any = import_vendor("cflib.crazyflie", "a Crazyflie", "crazyflie").Crazyflie(rw_cache=cache)
        self.state: tuple[dict[str, Any], float] | None = None
        self.battery_v, self.info = float("nan"), 0
        self.lost = ""
        self._decompress = import_vendor(
            "cflib.utils.encoding", "a Crazyflie", "crazyflie"
        ).decompress_quaternion

    def open(self) -> None:
        """Connect and wait for the first state. Raises DriverError when the craft does not answer or log."""
        ready, failed = threading.Event(), []

        def fail(uri: str, message: str) -> None:
            failed.append(message)
            ready.set()

        self.cf.fully_connected.add_callback(lambda uri: ready.set())
        self.cf.connection_failed.add_callback(fail)
        self.cf.connection_lost.add_callback(self._on_lost)
        self.cf.open_link(self._uri)
        if not ready.wait(CONNECT_S) or failed:
            why = failed[0].strip().splitlines()[0] if failed else f"no answer within {CONNECT_S:g} s"
            raise DriverError(
                f"{self.robot} does not answer ({why}). Check that it is switched on, that the radio is "
                "plugged in, and channel, rate and address in the URI (such as radio://0/80/2M/E7E7E7E7E7)."
            )
        self._log("state", STATE_MS, [f"stateEstimateZ.{name}" for name in STATE], self._on_state)
        self._log("status", STATUS_MS, ["pm.vbat", "supervisor.info"], self._on_status)
        deadline_s = time.monotonic() + 3.0
        while self.state is None or np.isnan(self.battery_v):
            if time.monotonic() > deadline_s:
                raise DriverError(f"{self.robot} is connected but logs nothing. Restart it.")
            time.sleep(0.005)

    def quaternion(self, compressed: int) -> Any:
        """[w, x, y, z], body to world, of the 32 bits that the firmware logs."""
        return np.roll(self._decompress(compressed), 1)

    def set_parameter(self, name: str, value: int, timeout_s: float = 0.5) -> None:
        """Set a parameter and wait for its confirmation.

        Raises DriverError when the firmware does not have it, or does not confirm it within `timeout_s`.
        """
        group, key = name.split(".")
        if self.cf.param.toc.get_element(group, key) is None:
            raise DriverError(f"The firmware of {self.robot} has no parameter {name}. Update it.")
        self.cf.param.set_value(name, value)
        deadline_s = time.monotonic() + timeout_s
        while int(float(self.cf.param.values[group][key])) != value:
            if time.monotonic() > deadline_s:
                raise DriverError(f"{self.robot} did not confirm {name} = {value}. Check the radio link.")
            time.sleep(0.002)

    def parameter(self, name: str) -> int | None:
        """Value of a parameter; None if the firmware does not have it."""
        group, key = name.split(".")
        value = self.cf.param.values.get(group, {}).get(key)
        return None if value is None else int(float(value))

    def fault(self) -> str:
        """The supervisor's fault as a sentence; empty without one."""
        return fault_of(self.info, self.robot)

    def close(self) -> None:
        """Close the link without a setpoint.

        cflib's `close_link` would first send a thrust of 0, which makes a flying craft fall, so the link is
        closed before.
        """
        link, self.cf.link = self.cf.link, None
        if link is not None:
            with contextlib.suppress(Exception):  # an unplugged radio raises various classes
                link.close()
        self.cf.close_link()

    def _log(self, name: str, period_ms: int, variables: list[str], callback: Any) -> None:
        config = import_vendor("cflib.crazyflie.log", "a Crazyflie", "crazyflie").LogConfig(name, period_ms)
        for variable in variables:
            config.add_variable(variable)
        try:
            self.cf.log.add_config(config)
        except KeyError as error:
            raise DriverError(
                f"The firmware of {self.robot} does not log {error.args[0]}. Update it."
            ) from error
        config.data_received_cb.add_callback(callback)
        config.start()

    def _on_state(self, stamp_ms: int, data: dict[str, Any], config: Any) -> None:
        self.state = data, time.monotonic()

    def _on_status(self, stamp_ms: int, data: dict[str, Any], config: Any) -> None:
        self.battery_v, self.info = float(data["pm.vbat"]), int(data["supervisor.info"])

    def _on_lost(self, uri: str, message: str) -> None:
        self.lost = message.strip().splitlines()[0] if message.strip() else "lost"
