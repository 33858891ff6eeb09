"""Interface of teleoperation devices, read fifty times a second.

A device of another package is a class with these four methods and an entry point in the group
`robo_rl.teleoperators`; see `hardware.teleop.registry` and docs/teleoperation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from numpy import ndarray

from robo_rl.core.shapes import Float


@dataclass(frozen=True, slots=True)
class HandPose:
    """Pose of the operator's hand in a fixed frame with z up; the quaternion wxyz is hand to frame."""

    position_m: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"]


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """Input of the operator. held: state of the dead-man switch; without it nothing moves.

    One of these four says where to: rates: (j,) of each joint, in -1 ... 1 of its speed. position_rad: (j,)
    wanted position. twist: (6,) of the tool in the base frame, x, y, z, then about x, y, z, in -1 ... 1 of
    its speeds. pose: of the hand; its motion since the switch was pressed moves the tool.

    gripper: wanted opening, 0 closed to 1 open; None: unchanged. gripper_toggle: true once per press of the
    button that opens or closes it. recorder_request: request to the recorder, once per press, with or
    without the switch.
    """

    held: bool
    rates: Float[ndarray, " r"] | None = None
    position_rad: Float[ndarray, " j"] | None = None
    twist: Float[ndarray, " 6"] | None = None
    pose: HandPose | None = None
    gripper: float | None = None
    gripper_toggle: bool = False
    recorder_request: str = ""


REQUESTS = ("start", "success", "failure", "discard")  # see hardware.topics.RECORDER_REQUEST
REQUEST_WORDS = (
    "records",
    "saves as a success",
    "saves as a failure",
    "throws away",
)  # effects of the requests, for the operator

NOTHING = OperatorInput(False)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a device may show its operator. driving: the arm follows this device.

    slowed: 0 while the tool follows the hand, up to 1 where joint speeds, joint ranges or a singular position
    keep it from moving. measured_rad: (j,) of the arm; None before the first state.
    """

    driving: bool
    slowed: float = 0.0
    measured_rad: Float[ndarray, " j"] | None = None


@runtime_checkable
class Teleoperator(Protocol):
    """A gamepad, a keyboard, a leader arm, a SpaceMouse, a hand that is tracked, or a recording of one."""

    def connect(self) -> None:
        """Open the device. Raises DriverError, with what to do, when it is not there."""
        ...

    def get_action(self, now_s: float) -> OperatorInput:
        """Present input; waits a few milliseconds at most. Raises DriverError when the device is gone."""
        ...

    def send_feedback(self, feedback: Feedback) -> None:
        """Show the operator what the arm does, as far as the device can; called after every action."""
        ...

    def help(self) -> str:
        """One sentence on what its buttons and axes do, for the terminal."""
        ...

    def close(self) -> None:
        """Release the device; may be repeated."""
        ...
