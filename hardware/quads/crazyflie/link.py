"""One connection to a Crazyflie: its state in one log packet at 100 Hz, its battery and supervisor at 10
Hz.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

import numpy as np

from hardware.driver import import_vendor
from robo_rl.core.errors import DriverError

STATE = (
    "x",
    "y",
    "z",
    "vx",
    "vy",
    "vz",
    "quat",
    "rateRoll",
    "ratePitch",
    "rateYaw",
)  # 22 bytes of a packet's 26
STATE_MS, STATUS_MS = 10, 100
CONNECT_S = 30.0  # tables of contents and parameters, over a radio
ARMED, FLYING, TUMBLED, LOCKED, CRASHED = 2, 16, 32, 64, 128  # bits of supervisor.info
FAULTS = {
    TUMBLED: "has tumbled: set it upright",
    LOCKED: "is locked after a fault: restart it",
    CRASHED: "has crashed: check it, then restart it",
}


class CrazyflieLink:
    """Callbacks of cflib come in a thread of its own; each replaces one whole record."""

    def __init__(self, uri: str, cache: str | None) -> None:
        self._crtp = import_vendor("cflib.crtp", "a Crazyflie", "crazyflie")
        logging.getLogger("cflib").addHandler(logging.NullHandler())  # what matters is said by our errors
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
                f"{self.robot} does not answer ({why}). Is it switched on, is the radio plugged in, are "
                "channel, rate and address in the URI its own, such as radio://0/80/2M/E7E7E7E7E7?"
            )
        self._log("state", STATE_MS, [f"stateEstimateZ.{name}" for name in STATE], self._on_state)
        self._log("status", STATUS_MS, ["pm.vbat", "supervisor.info"], self._on_status)
        deadline_s = time.monotonic() + 3.0
        while self.state is None or np.isnan(self.battery_v):
            if time.monotonic() > deadline_s:
                raise DriverError(f"{self.robot} is connected but logs nothing. Restart it.")
            time.sleep(0.005)

    def quaternion(self, compressed: int) -> Any:
        """wxyz of the 32 bits that the firmware logs."""
        return np.roll(self._decompress(compressed), 1)

    def set_parameter(self, name: str, value: int, timeout_s: float = 0.5) -> None:
        """Set and wait until the craft has said it back."""
        group, key = name.split(".")
        if self.cf.param.toc.get_element(group, key) is None:
            raise DriverError(f"The firmware of {self.robot} has no parameter {name}. Update it.")
        self.cf.param.set_value(name, value)
        deadline_s = time.monotonic() + timeout_s
        while int(float(self.cf.param.values[group][key])) != value:
            if time.monotonic() > deadline_s:
                raise DriverError(f"{self.robot} did not take {name} = {value}. Check the radio link.")
            time.sleep(0.002)

    def parameter(self, name: str) -> int | None:
        group, key = name.split(".")
        value = self.cf.param.values.get(group, {}).get(key)
        return None if value is None else int(float(value))

    def fault(self) -> str:
        """What the supervisor holds against flying; empty when nothing."""
        for bit, words in FAULTS.items():
            if self.info & bit:
                return f"{self.robot} {words}"
        return ""

    def close(self) -> None:
        """Let go of the link alone. cflib's `close_link` first sends thrust 0, which would drop a craft that
        flies.
        """
        link, self.cf.link = self.cf.link, None
        if link is not None:
            with contextlib.suppress(Exception):  # of a radio that was pulled out
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
