"""Leader arms of Dynamixel or Feetech servos on a serial bus, read by the vendors' packages, without torque.

Both packages have the same classes; only the addresses of the servos and the version of the protocol differ.
"""

from __future__ import annotations

import contextlib
import math
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.driver import import_vendor
from hardware.plain_values import integer, mapping
from hardware.states import ArmState
from robo_rl.core.errors import ConfigError, DriverError

TURN = 4096  # counts of a turn of both kinds
TRIES = 10  # of the first message to a servo; each waits 34 ms, which a busy computer may exceed
LOST_S = 0.3  # time without an answer after which a servo counts as lost


@dataclass(frozen=True, slots=True)
class ServoKind:
    """Vendor's package, version of its protocol, and addresses in a servo. negative: bit of the sign."""

    module: str
    protocol: float
    torque: int
    position: int
    length: int
    negative: int


KINDS = {
    "dynamixel": ServoKind("dynamixel_sdk", 2.0, 64, 132, 4, 1 << 31),  # X series
    "feetech": ServoKind("scservo_sdk", 0, 40, 56, 2, 1 << 15),  # STS and SMS series
}


def signed(count: int, kind: ServoKind) -> int:
    """Count of a servo: two's complement of 4 bytes, or sign and magnitude of 2 bytes."""
    if not count & kind.negative:
        return count
    return count - 2 * kind.negative if kind.length == 4 else -(count & (kind.negative - 1))


def shorter_way(counts: ndarray) -> ndarray:
    """The same angle as a motion of at most half a turn: a count of 4095 is followed by 0."""
    nearer: ndarray = (counts + TURN // 2) % TURN - TURN // 2
    return nearer


class ServoChain:
    """Joints of a leader arm. ids: of the servos, one per joint of the follower's arm, in its order.

    zero: count of each servo at the follower's position 0; empty: 2048, the middle. At `connect` a servo is
    within half a turn of it; from there it is followed through any number of turns. gripper: servo of the
    handle that closes the gripper, {id: 7, open: 2600, closed: 1900} in counts, less than half a turn apart.
    Raises ConfigError for an unknown kind or unusable values.
    """

    def __init__(
        self,
        kind: str,
        port: str,
        ids: Sequence[int],
        zero: Sequence[int] = (),
        baudrate: int = 1_000_000,
        gripper: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kind, self._port_name, self._baudrate, self._clock = KINDS[kind], port, baudrate, clock
        self._vendor, self._ids, self._zero = kind, tuple(ids), tuple(zero) or (TURN // 2,) * len(ids)
        self._gripper: tuple[int, ...] = ()
        if gripper is not None:
            keys = ("id", "open", "closed")
            mapping(gripper, "gripper", keys, keys)
            self._gripper = tuple(integer(gripper[key], f"gripper: {key}") for key in keys)
        all_ids = (*self._ids, *self._gripper[:1])
        usable = all(isinstance(i, int) and 0 <= i <= 252 for i in all_ids)
        if not ids or not usable or len(set(all_ids)) != len(all_ids) or len(self._zero) != len(self._ids):
            raise ConfigError(
                "A leader arm needs different ids from 0 to 252 and one zero for each, found "
                f"ids {list(ids)}, gripper {gripper} and zero {list(zero)}."
            )
        self._handle = float(shorter_way(np.diff(self._gripper[:0:-1]))[0]) if self._gripper else 0.0
        if self._gripper and self._handle in (0.0, -TURN / 2):
            raise ConfigError("gripper: open and closed are the same count, or half a turn apart.")
        self._all = all_ids
        self._port: Any = None
        self._reader: Any = None
        self._state: ArmState | None = None
        self._moved = np.zeros(len(self._ids))  # counts from zero, over all turns
        self.opening: float | None = None  # of the handle, 0 closed to 1 open; None without one

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the servos."""
        return tuple(f"servo{i}" for i in self._ids)

    def connect(self) -> None:
        """Open the bus and switch the torque off, so that the arm can be moved by hand."""
        sdk = import_vendor(self._kind.module, f"a leader arm of {self._vendor} servos", self._vendor)
        self._port = port = sdk.PortHandler(self._port_name)
        try:
            opened = port.openPort() and port.setBaudRate(self._baudrate)
        except OSError as error:
            self._port = None
            raise DriverError(
                f"The leader's bus {self._port_name} cannot be opened ({error}). Plug its adapter in; to be "
                "allowed to use it, join the group 'dialout'."
            ) from error
        if not opened:
            self.close()
            raise DriverError(f"The leader's bus {self._port_name} refuses {self._baudrate} baud.")
        handler = sdk.PacketHandler(self._kind.protocol)
        self._reader = sdk.GroupSyncRead(port, handler, self._kind.position, self._kind.length)
        for servo in self._all:
            self._reader.addParam(servo)
            results: list[int] = []
            with self._lost():
                while len(results) < TRIES and sdk.COMM_SUCCESS not in results:
                    port.ser.reset_input_buffer()
                    results.append(handler.write1ByteTxRx(port, servo, self._kind.torque, 0)[0])
            if sdk.COMM_SUCCESS not in results:
                self.close()
                raise DriverError(
                    f"Servo {servo} of the leader on {self._port_name} does not answer. Check its id, its "
                    f"power and the baud rate of {self._baudrate}."
                )
        self._state, self._moved = None, np.zeros(len(self._ids))
        until_s = self._clock() + LOST_S
        while self._state is None:
            self._read()
            if self._state is None and self._clock() > until_s:
                self.close()
                raise DriverError(f"The servos of the leader on {self._port_name} report no position.")

    def read(self) -> ArmState:
        """Newest positions [rad]; a lost answer is covered by the one before for `LOST_S`.

        An answer that comes too late is discarded.
        """
        self._read()
        state = self._state
        if state is None or self._clock() - state.received_s > LOST_S:
            raise DriverError(
                f"The servos of the leader on {self._port_name} have not answered for {LOST_S} s. Check "
                "cable and power, then start teleoperation again."
            )
        return state

    def close(self) -> None:
        port, self._port = self._port, None
        if port is not None and port.is_open:
            with contextlib.suppress(OSError, termios.error):
                port.closePort()

    def _read(self) -> None:
        if self._port is None:
            raise DriverError(f"The leader on {self._port_name} is not connected. Connect it first.")
        with self._lost():
            # A late answer to the cycle before would be read as the answer to this one, and every later
            # cycle would then read the one before: clearPort() of scservo_sdk discards no input.
            self._port.ser.reset_input_buffer()
            answered = self._reader.txRxPacket() == 0
        if not answered:
            return
        kind = self._kind
        read = [signed(self._reader.getData(i, kind.position, kind.length), kind) for i in self._all]
        counts, joints = np.array(read, float), len(self._ids)
        self._moved = self._moved + shorter_way(counts[:joints] - self._zero - self._moved)
        if self._gripper:
            half = self._handle / 2.0
            from_middle = float(shorter_way(counts[joints] - self._gripper[2] - half))
            self.opening = min(max((from_middle + half) / self._handle, 0.0), 1.0)
        self._state = ArmState(self._clock(), 2.0 * math.pi / TURN * self._moved, np.zeros(0))

    @contextlib.contextmanager
    def _lost(self) -> Any:
        """Report an adapter that was unplugged."""
        try:
            yield
        except (OSError, TypeError, termios.error) as error:  # pyserial raises all of them then
            self.close()
            raise DriverError(
                f"The leader's bus {self._port_name} is gone ({error}). Plug it in and start teleoperation "
                "again."
            ) from error
