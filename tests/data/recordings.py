"""Small datasets for tests: every number of a frame follows from the episode's seed and the frame's
position.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.store import DatasetWriter, EpisodeWriter

ENV = EnvSpec(
    "test/arm",
    {
        "state": ArraySpec((3,), "float32", "rad"),
        "image.front": ArraySpec((16, 12, 3), "uint8", "rgb"),
        "image.wrist": ArraySpec((8, 8, 3), "uint8", "rgb"),
    },
    ActionSpec((-1.0, -2.0), (1.0, 2.0), "rad/s"),
    max_episode_steps=100,
    control_hz=20.0,
)
STATE_ENV = EnvSpec("test/state", {"state": ENV.obs["state"]}, ENV.action, 100, 20.0)


def state(seed: int, frame: int) -> ndarray:
    return np.array([seed, frame, seed * 1000 + frame], dtype=np.float32)


def image(seed: int, frame: int, shape: tuple[int, ...]) -> ndarray:
    """A smooth image that JPEG keeps within a few grey levels."""
    ramp = np.arange(np.prod(shape)).reshape(shape) * 40 // np.prod(shape)
    return (ramp + (seed * 7 + frame * 3) % 200).astype(np.uint8)


def obs(seed: int, frame: int, env: EnvSpec = ENV) -> dict[str, ndarray]:
    return {
        key: state(seed, frame) if key == "state" else image(seed, frame, tuple(spec.shape))
        for key, spec in env.obs.items()
    }


def action(seed: int, frame: int) -> ndarray:
    return np.array([np.sin(seed + frame), 2.0 * np.cos(frame)], dtype=np.float32)


def add_frames(episode: EpisodeWriter, seed: int, frames: int, env: EnvSpec = ENV) -> None:
    period_ns = round(1e9 / env.control_hz)
    for i in range(frames):
        stamps = {"t_capture_ns": i * period_ns, "t_receive_ns": i * period_ns + 5_000_000}
        episode.add(
            obs(seed, i, env),
            action(seed, i),
            reward=float(i),
            terminated=i == frames - 1,
            intervention=i % 2 == 1,
            stamps={**stamps, "t_command_ns": i * period_ns + 9_000_000},
        )


def interrupt(writer: DatasetWriter, seed: int, frames: int, env: EnvSpec = ENV) -> None:
    """An episode that is interrupted by Ctrl-C."""
    with suppress(KeyboardInterrupt), writer.episode(task="interrupted", seed=seed) as episode:
        add_frames(episode, seed, frames, env)
        raise KeyboardInterrupt


def record(
    path: Path,
    lengths: list[int],
    *,
    env: EnvSpec = ENV,
    codec: Codec = "raw",
    final: bool = True,
) -> Path:
    """A dataset of episodes 0, 1, ... with these lengths; episode k has seed k and succeeds when k is
    even.
    """
    writer = DatasetWriter.create(path, env, image_codec=codec, min_free_bytes=0, durable=False)
    for seed, frames in enumerate(lengths):
        with writer.episode(task=f"task {seed % 2}", seed=seed) as episode:
            add_frames(episode, seed, frames, env)
            episode.commit(success=seed % 2 == 0, final_obs=obs(seed, frames, env) if final else None)
    return path
