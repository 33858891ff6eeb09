"""What every device of a human says, fifty times a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from numpy import ndarray


@dataclass(frozen=True, slots=True)
class Wish:
    """What the human wants now. held: is the dead-man switch? Without it nothing moves.

    rates: (j,) of each joint, in -1 ... 1 of its speed. position_rad: (j,) where the arm shall be; one of the
    two. ask: what the recorder shall do, said once for each press; with or without the switch.
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
    """A gamepad, a keyboard, a leader arm."""

    def poll(self, now_s: float) -> Wish:
        """What is wanted now; never waits. Raises DriverError when the device is gone."""
        ...

    def close(self) -> None: ...
