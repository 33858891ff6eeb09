"""Teleoperation of an arm: `teleop/intervention` while the dead-man switch is held, with `teleop/command`.

Buttons that begin and end recordings publish on `episode/ask`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Bus
from hardware.description import RobotDescription
from hardware.messages import Flag, JointState, JointTrajectory, Text
from hardware.nodes.shared.send_clock import SendClock
from hardware.teleop.device import NOTHING, Device, OperatorInput
from hardware.teleop.jog import Jog
from hardware.topics import INTERVENTION, JOINT_STATES, RECORDER_REQUEST, TELEOP
from robo_rl.core.errors import DriverError
from robo_rl.core.shapes import Float

RATE_HZ = 50.0
FRESH_S = 0.1  # oldest joint_states with which the arm may be moved
MATCH_RAD = 0.15  # largest distance of a leader arm from its follower at a takeover
SPEED = 0.3  # share of each joint's largest velocity at full deflection


def complain(sentence: str) -> None:
    print(f"teleop: {sentence}", file=sys.stderr, flush=True)


class TeleopNode:
    """Reads the device at 50 Hz."""

    def __init__(
        self, bus: Bus, device: Device, robot: RobotDescription, say: Callable[[str], None] = complain
    ) -> None:
        self._bus, self._device, self._names, self._say = bus, device, robot.names, say
        speed_rad_s = SPEED * robot.column("velocity_rad_s")
        self._jog = Jog(robot.column("low_rad"), robot.column("high_rad"), speed_rad_s)
        self._measured_rad: Float[ndarray, " j"] | None = None
        self._seen_s = -np.inf
        self._on, self._clock, self._frame = False, SendClock(bus), robot.frame_id
        self._reported, self._gone, self._closed = "", False, False
        self._send, self._flag, self._request = (
            TELEOP.publisher(bus),
            INTERVENTION.publisher(bus),
            RECORDER_REQUEST.publisher(bus),
        )
        JOINT_STATES.subscribe(bus, self._on_state)
        bus.timer(1.0 / RATE_HZ, self._tick)
        self._flag(Flag(False))

    def stop(self, why: str) -> str:
        """End the intervention."""
        was, self._gone = self._on, True
        self._release()
        return f"{why}: {'let go of the arm' if was else 'nothing was held'}"

    @property
    def at_rest(self) -> bool:
        return not self._on

    def last_word(self) -> None:
        """End the intervention and close the device."""
        self._flag(Flag(False))
        if not self._closed:
            self._closed = True
            self._device.close()

    def _on_state(self, message: JointState, received_s: float) -> None:
        if set(self._names) <= set(message.names):
            measured_rad = message.position_rad[[message.names.index(name) for name in self._names]]
            if np.isfinite(measured_rad).all():
                self._measured_rad, self._seen_s = measured_rad, received_s

    def _tick(self) -> None:
        operator, measured_rad = self._read_device(), self._measured_rad
        if operator.recorder_request:
            self._request(Text(operator.recorder_request))
        if not operator.held or measured_rad is None or self._bus.now() - self._seen_s > FRESH_S:
            self._release()
            return
        target_rad = self._target(operator, measured_rad)
        if target_rad is None:
            return
        if not self._on:
            self._on = True
            self._flag(Flag(True))
        self._reported = ""
        times_s = np.array([1.0 / RATE_HZ])
        self._send(JointTrajectory(self._clock.stamp(), self._names, target_rad[None], times_s, self._frame))

    def _read_device(self) -> OperatorInput:
        if self._gone:
            return NOTHING
        try:
            operator = self._device.poll(self._bus.now())
            if operator.position_rad is not None and len(operator.position_rad) != len(self._names):
                raise DriverError(
                    f"The leader has {len(operator.position_rad)} joints, its follower {len(self._names)}."
                )
            return operator
        except DriverError as error:
            self._gone = True
            self._say(str(error))
            return NOTHING

    def _target(
        self, operator: OperatorInput, measured_rad: Float[ndarray, " j"]
    ) -> Float[ndarray, " j"] | None:
        """Next position; None, with one report, while a leader is too far from its follower."""
        if operator.rates is not None:
            return self._jog.next(self._filled(operator.rates), measured_rad, 1.0 / RATE_HZ)
        if operator.position_rad is None:
            return None
        target_rad = operator.position_rad
        off_rad = np.abs(target_rad - measured_rad)
        if not self._on and off_rad.max() > MATCH_RAD:
            worst = int(off_rad.argmax())
            sentence = f"Bring {self._names[worst]} of the leader to its follower first"
            if sentence != self._reported:
                self._say(
                    f"{sentence}: it is {off_rad[worst]:.2f} rad away, {MATCH_RAD} rad are near enough."
                )
            self._reported = sentence
            return None
        return target_rad

    def _filled(self, rates: Float[ndarray, " r"]) -> Float[ndarray, " j"]:
        """A pad with fewer axes than joints leaves the last joints alone; more axes than joints are not
        used.
        """
        joints = len(self._names)
        return np.concatenate([rates[:joints], np.zeros(max(0, joints - len(rates)))])

    def _release(self) -> None:
        self._jog.release()
        if self._on:
            self._on = False
            self._flag(Flag(False))
