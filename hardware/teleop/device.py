"""Interface of teleoperation devices, polled fifty times a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from numpy import ndarray

from robo_rl.core.shapes import Float


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator wants now. held: state of the dead-man switch; without it nothing moves.

    rates: (j,) of each joint, in -1 ... 1 of its speed. position_rad: (j,) wanted position; one of the two.
    ask: request to the recorder, given once per press, with or without the switch.
    """

    held: bool
    rates: Float[ndarray, " j"] | None = None
    position_rad: Float[ndarray, " j"] | None = None
    ask: str = ""


ASKS = ("start", "success", "failure", "discard")  # of the recorder: see hardware.topics.ASK
ASK_WORDS = (
    "records",
    "saves as a success",
    "saves as a failure",
    "throws away",
)  # the same, to who holds the device

NOTHING = Wish(False)


@runtime_checkable
class Device(Protocol):
    """A gamepad, a keyboard or a leader arm."""

    def poll(self, now_s: float) -> Wish:
        """Present input; never waits. Raises DriverError when the device is gone."""
        ...

    def close(self) -> None: ...
