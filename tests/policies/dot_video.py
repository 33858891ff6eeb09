"""Videos of a dot that moves to the right by one pixel per frame, each at another height."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy import ndarray

from policies.pretraining.frames import VideoFrames
from policies.pretraining.value import VideoValue
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter
from robo_rl.data.windows import WindowDataset, WindowSpec
from robo_rl.nets.image_encoder import ImageEncoder, ImageEncoderConfig

SIDE, FRAMES = 16, 12
CAMERA = "image.top"
ENV = EnvSpec(
    "test/dot",
    {CAMERA: ArraySpec((SIDE, SIDE, 3), "uint8"), "state": ArraySpec((1,))},
    ActionSpec((-1.0,), (1.0,)),
    max_episode_steps=FRAMES,
    control_hz=10.0,
)
SMALL = ImageEncoderConfig(widths=[8, 16], features=16, keypoints=8)


def picture(x: float, y: float, height: int = SIDE, width: int = SIDE) -> ndarray:
    """(height, width, 3) uint8: a bright dot of about two pixels."""
    across, down = np.arange(width), np.arange(height)[:, None]
    light = np.exp(-((across - x) ** 2 + (down - y) ** 2) / 2.0)
    return np.repeat((light * 255.0).astype(np.uint8)[..., None], 3, axis=-1)


def record_dots(path: Path, videos: int, frames: int = FRAMES, env: EnvSpec = ENV) -> Path:
    """Frame i of each video has the dot at x = 2 + i. Every second episode is marked as failed."""
    writer = DatasetWriter.create(path, env, min_free_bytes=0, durable=False)
    heights = np.random.default_rng(0).uniform(3.0, 12.0, videos)
    for number, y in enumerate(heights):
        with writer.episode(seed=number) as episode:
            for i in range(frames):
                seen = {
                    key: picture(2 + i, y, *array.shape[:2])
                    if array.dtype == "uint8"
                    else np.full(1, i, np.float32)
                    for key, array in env.obs.items()
                }
                episode.add(seen, np.zeros(env.action.dim, np.float32), reward=0.0)
            episode.commit(success=number % 2 == 0)
    return path


def dots(path: Path) -> VideoFrames:
    """Frames of the recorded videos."""
    return VideoFrames([WindowDataset(path, WindowSpec(1, 1), [CAMERA])])


def small_value(seed: int = 0, width: int = 32) -> VideoValue:
    """Untrained networks."""
    torch.manual_seed(seed)
    return VideoValue(ImageEncoder((SIDE, SIDE, 3), SMALL), SMALL.features, width)
