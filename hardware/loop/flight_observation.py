"""Observation of a velocity policy of a quadcopter: state, pictures and instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hardware.loop.observation import DEPTH, IMAGE, Picture, Seen, picture_seen, words_seen
from hardware.messages import DepthImage, Odometry
from policies.flight.level_state import SIZE, level_state
from policies.flight.observer import VehicleState
from robo_rl.core.errors import CheckpointError
from robo_rl.core.flight.frames import rotation_of
from robo_rl.core.spec import ArraySpec
from robo_rl.core.text.instruction import INSTRUCTION

STATE = "state"


class CameraFlightObserver:
    """Builds `state`, `image.<camera>`, `depth.<camera>` and `instruction` of one instant.

    Raises CheckpointError for an observation that it cannot provide.
    """

    def __init__(self, spec: Mapping[str, ArraySpec]) -> None:
        self.spec = dict(spec)
        self.pictures = tuple(key for key in spec if key.startswith((IMAGE, DEPTH)))
        self.reads_words = INSTRUCTION in spec
        given = {STATE, INSTRUCTION, *self.pictures}
        if unknown := [key for key in spec if key not in given]:
            raise CheckpointError(
                f"The bundle needs {', '.join(unknown)}, which no node of a quadcopter publishes."
            )
        if STATE in spec and spec[STATE].shape != (SIZE,):
            raise CheckpointError(
                f"The bundle's 'state' has the shape {spec[STATE].shape}; a velocity policy is shown {SIZE} "
                "numbers: height, velocity, tilt and yaw rate, as in drone/seek."
            )

    def build(self, message: Odometry, pictures: Mapping[str, Picture], words: str = "") -> Seen:
        """Observation without a batch axis; of a picture with another aspect ratio the middle is used.

        Raises DataError for an invalid state, a picture that is missing or too small, and words that are no
        instruction.
        """
        seen: Seen = {}
        for key in self.pictures:
            shape, given = self.spec[key].shape, pictures.get(key)
            cut = {} if given is None else {key: middle_of(given, shape[1] / shape[0])}
            seen[key] = picture_seen(key, shape, cut)
        if STATE in self.spec:
            seen[STATE] = level_state(vehicle_state(message))
        if self.reads_words:
            seen[INSTRUCTION] = words_seen(words)
        return seen


def middle_of(picture: Picture, aspect: float) -> Picture:
    """The largest middle part of a picture with this ratio of width to height."""
    whole = picture.depth_m if isinstance(picture, DepthImage) else picture.pixels
    height, width = whole.shape[:2]
    high, wide = min(height, round(width / aspect)), min(width, round(height * aspect))
    top, left = (height - high) // 2, (width - wide) // 2
    part = whole[top : top + high, left : left + wide]
    if isinstance(picture, DepthImage):
        return replace(picture, depth_m=part)
    return replace(picture, pixels=part)


def vehicle_state(message: Odometry) -> VehicleState:
    """State of a message, with the velocity in the world frame."""
    velocity = rotation_of(message.quat_wxyz) @ message.velocity_body_m_s
    return VehicleState(message.position_m, message.quat_wxyz, velocity, message.rates_rad_s)
