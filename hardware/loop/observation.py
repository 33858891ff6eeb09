"""What a policy is shown, put together from what the bus carries: joint states, pictures, what the task asks for."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.layout import POSITION, VELOCITY, parse_unit
from hardware.messages import Image, JointState
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.spec import ArraySpec

Seen = dict[str, ndarray]
_IMAGE = "image."


class ArmObserver:
    """Builds `state` and `image.<camera>` of one instant.

    What stands in `state` beside joint positions and velocities is what the task asks for: the topic `goal`. Raises
    CheckpointError for a bundle that does not name its joints.
    """

    def __init__(self, spec: Mapping[str, ArraySpec]) -> None:
        self.spec = dict(spec)
        self.cameras = tuple(key.removeprefix(_IMAGE) for key in spec if key.startswith(_IMAGE))
        self._segments = parse_unit(spec["state"].unit) if "state" in spec else ()
        count = sum(len(segment.names) for segment in self._segments)
        if "state" in spec and (count,) != spec["state"].shape:
            raise CheckpointError(
                f"The bundle's 'state' has {spec['state'].shape} numbers and its unit names {count} "
                f"('{spec['state'].unit}'): a robot cannot tell which is which. Train on an environment that names "
                "them, as arm6/reach does: 'rad: <joints>; rad/s: <joints>; m: <what the task asks for>'."
            )
        if unknown := [k for k in spec if k != "state" and not k.startswith(_IMAGE)]:
            raise CheckpointError(f"The bundle needs {', '.join(unknown)}, which no node of an arm tells.")
        self.goal_size = sum(len(s.names) for s in self._segments if s.unit not in (POSITION, VELOCITY))

    def build(self, joints: JointState, images: Mapping[str, Image], goal: Float[ndarray, " g"] | None) -> Seen:
        """The observation, without a batch axis. Raises DataError that says what is missing."""
        seen: Seen = {}
        if "state" in self.spec:
            seen["state"] = self._state(joints, np.zeros(0) if goal is None else np.asarray(goal))
        for camera in self.cameras:
            seen[_IMAGE + camera] = self._image(camera, images)
        return seen

    def _state(self, joints: JointState, goal: Float[ndarray, " g"]) -> Float[ndarray, " s"]:
        if goal.shape != (self.goal_size,):
            raise DataError(
                f"The policy is shown {self.goal_size} numbers of the task; the topic 'goal' has {goal.size}."
            )
        if not np.isfinite(goal).all():
            raise DataError(f"The topic 'goal' holds {goal.tolist()}, not finite numbers, so the policy is not asked.")
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
                raise DataError(f"'joint_states' lacks the joint {', '.join(missing)}, which the policy is shown.")
            parts.append(values[[places[name] for name in segment.names]])
        state: Float[ndarray, " s"] = np.concatenate(parts).astype(np.float32)
        if not np.isfinite(state).all():
            raise DataError("The robot's state is not finite, so the policy is not asked.")
        return state

    def _image(self, camera: str, images: Mapping[str, Image]) -> Any:
        if camera not in images:
            raise DataError(f"No picture of the camera '{camera}' has come yet.")
        pixels, shape = images[camera].pixels, self.spec[_IMAGE + camera].shape
        if pixels.shape != shape:
            raise DataError(
                f"The camera '{camera}' gives pictures of {pixels.shape}, the policy was trained on {shape}."
            )
        return pixels


class History:
    """The last `steps` observations, one per control period, the oldest repeated at the beginning of an episode."""

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
