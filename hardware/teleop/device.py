"""Interface of teleoperation devices, polled fifty times a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from numpy import ndarray

from robo_rl.core.shapes import Float


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """Input of the operator. held: state of the dead-man switch; without it nothing moves.

    rates: (j,) of each joint, in -1 ... 1 of its speed. position_rad: (j,) wanted position; one of the two.
    recorder_request: request to the recorder, given once per press, with or without the switch.
    """

    held: bool
    rates: Float[ndarray, " j"] | None = None
    position_rad: Float[ndarray, " j"] | None = None
    recorder_request: str = ""


REQUESTS = ("start", "success", "failure", "discard")  # see hardware.topics.RECORDER_REQUEST
REQUEST_WORDS = (
    "records",
    "saves as a success",
    "saves as a failure",
    "throws away",
)  # effects of the requests, for the operator

NOTHING = OperatorInput(False)


@runtime_checkable
class Device(Protocol):
    """A gamepad, a keyboard or a leader arm."""

    def poll(self, now_s: float) -> OperatorInput:
        """Present input; never waits. Raises DriverError when the device is gone."""
        ...

    def close(self) -> None: ...
