"""Observations of a policy, assembled from messages: joint states, pictures, and the task's goal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy import ndarray

from hardware.layout import POSITION, VELOCITY, parse_unit
from hardware.loop.scale import scalable, scaled
from hardware.messages import DepthImage, Image, JointState
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.core.shapes import Float, UInt8
from robo_rl.core.spec import ArraySpec
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes

Seen = dict[str, ndarray]
Picture = Image | DepthImage
IMAGE, DEPTH, POINTS = "image.", "depth.", "points."
FAR_M = 10.0  # unknown depth or depth beyond this, as simulated cameras report the sky


class ArmObserver:
    """Builds `state`, `image.<camera>` and `depth.<camera>` of one instant.

    Entries of `state` beside joint positions and velocities come from the topic `goal`. words: also builds
    `instruction`, from the topic `task`. Raises CheckpointError for a bundle that does not name its joints.
    """

    def __init__(self, spec: Mapping[str, ArraySpec], *, words: bool = False) -> None:
        self.spec = dict(spec)
        self.pictures = tuple(key for key in spec if key.startswith((IMAGE, DEPTH)))
        self._segments = parse_unit(spec["state"].unit) if "state" in spec else ()
        count = sum(len(segment.names) for segment in self._segments)
        if "state" in spec and (count,) != spec["state"].shape:
            raise CheckpointError(
                f"The bundle's 'state' has {spec['state'].shape} numbers and its unit names {count} "
                f"('{spec['state'].unit}'): a robot cannot tell which is which. Train on an environment that "
                "names them, as arm6/reach does: 'rad: <joints>; rad/s: <joints>; m: <what the task asks "
                "for>'."
            )
        self.reads_words = words and INSTRUCTION in spec
        given = {"state", *self.pictures, *([INSTRUCTION] if self.reads_words else [])}
        if unknown := [key for key in spec if key not in given]:
            raise CheckpointError(unavailable_message(unknown))
        self.goal_size = sum(len(s.names) for s in self._segments if s.unit not in (POSITION, VELOCITY))

    def build(
        self,
        joints: JointState,
        pictures: Mapping[str, Picture],
        goal: Float[ndarray, " g"] | None,
        words: str = "",
    ) -> Seen:
        """Observation without a batch axis; pictures by key. Raises DataError that names what is missing."""
        seen: Seen = {}
        if "state" in self.spec:
            known = (
                goal is not None and self.goal_size > 0
            )  # a policy without a goal input ignores the goal topic
            seen["state"] = self._state(joints, np.asarray(goal) if known else np.zeros(0))
        for key in self.pictures:
            seen[key] = picture_seen(key, self.spec[key].shape, pictures)
        if self.reads_words:
            seen[INSTRUCTION] = words_seen(words)
        return seen

    def _state(self, joints: JointState, goal: Float[ndarray, " g"]) -> Float[ndarray, " s"]:
        if goal.shape != (self.goal_size,):
            raise DataError(
                f"The policy is shown {self.goal_size} numbers of the task; the topic 'goal' has {goal.size}."
            )
        if not np.isfinite(goal).all():
            raise DataError(
                f"The topic 'goal' holds {goal.tolist()}, not finite numbers, so the policy is not asked."
            )
        places = {name: i for i, name in enumerate(joints.names)}
        parts, used = [], 0
        for segment in self._segments:
            if segment.unit not in (POSITION, VELOCITY):
                parts.append(goal[used : used + len(segment.names)])
                used += len(segment.names)
                continue
            values = joints.position_rad if segment.unit == POSITION else joints.velocity_rad_s
            if len(values) != len(joints.names):
                raise DataError("'joint_states' carries no velocities, and the policy is shown them.")
            if missing := [name for name in segment.names if name not in places]:
                raise DataError(
                    f"'joint_states' lacks the joint {', '.join(missing)}, which the policy is shown."
                )
            parts.append(values[[places[name] for name in segment.names]])
        state: Float[ndarray, " s"] = np.concatenate(parts).astype(np.float32)
        if not np.isfinite(state).all():
            raise DataError("The robot's state is not finite, so the policy is not asked.")
        return state


def words_seen(words: str) -> UInt8[ndarray, " 128"]:
    """Observation of the topic `task`. Raises DataError for words that are no instruction."""
    try:
        return to_bytes(words)
    except ConfigError as error:
        raise DataError(f"The topic 'task' cannot be followed: {error}") from error


def picture_seen(key: str, shape: Sequence[int], pictures: Mapping[str, Picture]) -> ndarray:
    """Picture of a key as the policy is shown it, with this shape; a larger one is scaled down.

    Raises DataError for a picture that is missing, or that cannot be scaled to the shape.
    """
    sense, _, camera = key.partition(".")
    what = "picture" if sense == "image" else "depth"
    if key not in pictures:
        raise DataError(f"No {what} of the camera '{camera}' has come yet.")
    picture = pictures[key]
    values = depth_seen(picture.depth_m) if isinstance(picture, DepthImage) else picture.pixels
    (height, width), wanted = values.shape[:2], (shape[0], shape[1])
    if values.shape[2:] != tuple(shape[2:]) or not scalable((height, width), wanted):
        raise DataError(
            f"The camera '{camera}' gives {what}s of {values.shape}, the policy is shown {tuple(shape)}: "
            "neither the same, nor the same scaled down. Has the robot's description this camera's "
            "width_px and height_px?"
        )
    return scaled(values, wanted)


def depth_seen(depth_m: Float[ndarray, "h w"]) -> Float[ndarray, "h w"]:
    """Depth as policies are trained on it: unknown depth, or depth beyond 10 m, becomes 10 m."""
    kept: Float[ndarray, "h w"] = np.where(depth_m <= FAR_M, depth_m, np.float32(FAR_M)).astype(np.float32)
    return kept


def unavailable_message(keys: Sequence[str]) -> str:
    """Message about observations that no topic carries."""
    clouds = any(key.startswith(POINTS) for key in keys)
    hint = " Point clouds are not sent, but depths are: train with env=...:senses=depth." if clouds else ""
    return f"The bundle needs {', '.join(keys)}, which no node of an arm publishes.{hint}"


class ObservationHistory:
    """Last `steps` observations, one per control period; the oldest is repeated at an episode's start."""

    def __init__(self, steps: int) -> None:
        self._rows: deque[Seen] = deque(maxlen=steps)

    def reset(self) -> None:
        self._rows.clear()

    def push(self, seen: Seen) -> None:
        while len(self._rows) < (self._rows.maxlen or 1) - 1:
            self._rows.append(seen)
        self._rows.append(seen)

    def stacked(self) -> Seen:
        """(steps, *shape), newest last."""
        return {key: np.stack([row[key] for row in self._rows]) for key in self._rows[-1]}
