"""Push-T: contracts of its three observation types, and the key map of the published human demonstrations.

    pusht/state      state (5,)   agent x, y, block x, y [px], block angle in [0, 2 pi) [rad]
    pusht/keypoints  state (18,)  agent x, y, then x, y of the block's 8 key points [px]
    pusht/pixels     image.front (96, 96, 3), state (2,) agent x, y [px]

The action is the target position of the agent, x, y [px]. The simulator in `sim/adapters/pusht.py` has the
same contracts.

The pose of the block is (x, y) of its body origin [px] and an angle [rad] on a table of 512 x 512 px, y down.
Its key points are the vertices of the T's two bars in the order of `gym-pusht`. The nine key points in the
published file are points inside the T, none of them a vertex. So key points are computed from the pose, which
agrees with the simulator to float32 precision.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.importers import KeyMap, ReplayBufferSource

# Vertices in the block's frame [px]: the cross bar, then the stem (gym-pusht 0.1.8, `add_tee` with scale 30).
_VERTICES_PX = np.array(
    [(-60, 0), (60, 0), (60, 30), (-60, 30), (-15, 30), (15, 30), (15, 120), (-15, 120)], dtype=np.float64
)
_ACTION = ActionSpec((0.0, 0.0), (512.0, 512.0), "px")
_IMAGE = ArraySpec((96, 96, 3), "uint8")

_OBS = {
    "pusht/state": {"state": ArraySpec((5,), "float32", "px, rad")},
    "pusht/keypoints": {"state": ArraySpec((18,), "float32", "px")},
    "pusht/pixels": {"image.front": _IMAGE, "state": ArraySpec((2,), "float32", "px")},
}


def block_keypoints(pose: Float[ndarray, "n 3"]) -> Float[ndarray, "n 16"]:
    """Key points (8, 2) [px] of a block pose (x px, y px, angle rad): rotated vertices plus the position."""
    cos, sin = np.cos(pose[:, 2, None]), np.sin(pose[:, 2, None])
    x, y = _VERTICES_PX[:, 0], _VERTICES_PX[:, 1]
    points = np.stack([cos * x - sin * y + pose[:, 0, None], sin * x + cos * y + pose[:, 1, None]], axis=-1)
    return points.reshape(len(pose), 16)


def _keypoint_state(state: Float[ndarray, "n 5"]) -> Float[ndarray, "n 18"]:
    return np.concatenate([state[:, :2], block_keypoints(state[:, 2:].astype(np.float64))], axis=1)


def _agent(state: Float[ndarray, "n 5"]) -> Float[ndarray, "n 2"]:
    return state[:, :2]


_KEYS: dict[str, KeyMap] = {
    "pusht/state": {"state": "data/state", "action": "data/action"},
    "pusht/keypoints": {
        "state": ReplayBufferSource(("data/state",), _keypoint_state),
        "action": "data/action",
    },
    "pusht/pixels": {
        "image.front": "data/img",
        "state": ReplayBufferSource(("data/state",), _agent),
        "action": "data/action",
    },
}


def pusht_spec(name: str) -> EnvSpec:
    """Contract of "pusht/state", "pusht/keypoints" or "pusht/pixels": 10 Hz, 300 steps, agent target in
    px.
    """
    if name not in _OBS:
        raise UnknownNameError("Push-T observation", name, _OBS)
    return EnvSpec(name, _OBS[name], _ACTION, max_episode_steps=300, control_hz=10.0)


def pusht_keys(name: str) -> KeyMap:
    """Key map of the published buffer (`data/img`, `data/state`, `data/action`) for `pusht_spec(name)`."""
    pusht_spec(name)
    return _KEYS[name]
