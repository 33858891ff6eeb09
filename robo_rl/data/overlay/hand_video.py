"""Contract of a dataset of hand videos: which observations give the hand's pose, opening and mask.

image.<camera>   (h, w, 3) uint8    picture of a camera that does not move
hand.position    (3,)               point between the tips of thumb and index finger [m; world frame]
hand.quat        (4,), optional     wxyz, hand -> world; z along the fingers, y from thumb to index finger
hand.opening     (1,)               0: thumb and index finger touch, 1: wide open
mask.<camera>    (h, w, 1) uint8, optional    not 0 where a pixel shows the hand or arm
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.shapes import Bool, Float64
from robo_rl.data.episodes.reader import Episode, EpisodeStore

POSITION, QUAT, OPENING = "hand.position", "hand.quat", "hand.opening"
_SIZES = {POSITION: 3, QUAT: 4, OPENING: 1}


@dataclass(frozen=True, slots=True)
class HandPoses:
    """The hand in n frames. quat: None where the dataset gives no orientation."""

    position_m: Float64[ndarray, "n 3"]
    quat: Float64[ndarray, "n 4"] | None
    opening: Float64[ndarray, " n"]


def hand_camera(store: EpisodeStore, camera: str | None) -> str:
    """Name of the camera whose pictures show the hand; None: the only one.

    Raises ConfigError for a camera that the dataset lacks, DataError for a dataset that breaks the contract.
    """
    obs = store.spec.obs
    cameras = [key.removeprefix("image.") for key in obs if key.startswith("image.")]
    if not len(store) or not cameras:
        lacks = "episodes" if cameras else "pictures image.<camera>"
        raise DataError(f"{store.path} holds no {lacks}, so there is no hand to draw a robot over.")
    name = cameras[0] if camera is None and len(cameras) == 1 else (camera or "").removeprefix("image.")
    if name not in cameras:
        found = "is missing" if camera is None else f"{camera} cannot be used"
        raise ConfigError(f"camera= {found}: the cameras in {store.path} are {', '.join(cameras)}.")
    for key, size in _SIZES.items():
        if key not in obs and key != QUAT:
            raise DataError(
                f"{store.path} has no observation {key}, only {', '.join(obs)}. A dataset of hand videos "
                f"needs {POSITION} and {OPENING} (docs/algorithms/video-pretraining.md)."
            )
        if key in obs and obs[key].shape != (size,):
            raise DataError(f"{key} in {store.path} has shape {obs[key].shape}, ({size},) was expected.")
    mask, shape = obs.get(mask_key(name)), obs[f"image.{name}"].shape[:2]
    if mask is not None and (mask.dtype != "uint8" or mask.shape not in (shape, (*shape, 1))):
        raise DataError(
            f"{mask_key(name)} in {store.path} is {mask.dtype} {mask.shape}, uint8 {(*shape, 1)} was "
            "expected, as its pictures."
        )
    return name


def mask_key(camera: str) -> str:
    """Key of a camera's masks."""
    return f"mask.{camera}"


def hand_poses(episode: Episode) -> HandPoses:
    """The hand in every picture of an episode. Raises DataError for numbers that are no pose."""
    found = {key: episode.obs(key).astype(np.float64) for key in _SIZES if key in episode.dataset.env.obs}
    for key, rows in found.items():
        if (bad := np.flatnonzero(~np.isfinite(rows).all(1))).size:
            raise _fault(episode, key, int(bad[0]), "not finite; fill gaps in the track before")
    opening = found[OPENING][:, 0]
    if (bad := np.flatnonzero((opening < 0.0) | (opening > 1.0))).size:
        raise _fault(episode, OPENING, int(bad[0]), f"{opening[bad[0]]:g}; expected 0 (closed) to 1 (open)")
    quat = found.get(QUAT)
    if quat is not None:
        norm = np.linalg.norm(quat, axis=1, keepdims=True)
        if (bad := np.flatnonzero(norm[:, 0] < 1e-6)).size:
            raise _fault(episode, QUAT, int(bad[0]), "zero; expected a unit quaternion wxyz")
        quat = quat / norm
    return HandPoses(found[POSITION], quat, opening)


def _fault(episode: Episode, key: str, frame: int, found: str) -> DataError:
    return DataError(f"{key} of frame {frame} in {episode.path} is {found}.")


def hand_masks(episode: Episode, camera: str) -> Bool[ndarray, "n h w"] | None:
    """Stored masks of an episode; None for a dataset without."""
    if mask_key(camera) not in episode.dataset.env.obs:
        return None
    stored = episode.obs(mask_key(camera))
    masks: Bool[ndarray, "n h w"] = stored.reshape(stored.shape[:3]) > 0
    return masks
