"""A dataset with every kind of observation and label, for exports that have to keep or to state them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.reward_marks import RewardMark, with_mark
from robo_rl.data.formats.rows import EpisodeRows, write_rows
from robo_rl.data.store import DatasetWriter, EpisodeMeta

ODD = EnvSpec(  # every kind of observation that the store knows, and names that other formats use themselves
    "robot/odd",
    {
        "state": ArraySpec((2,), "float64"),
        "front": ArraySpec((1,), "int32"),
        "image.front": ArraySpec((9, 7, 3), "uint8"),
        "image.action": ArraySpec((8, 8, 3), "uint8"),
        "segmentation.front": ArraySpec((6, 4, 1), "uint8"),
        "depth.front": ArraySpec((6, 4), "float32", "m"),
        "points.front": ArraySpec((5, 3), "float32", "m"),
        "touch": ArraySpec((2, 3, 4), "float16"),
        "count": ArraySpec((2,), "int64"),
        "height": ArraySpec((), "float32", "m"),
    },
    ActionSpec((-1.0,), (1.0,)),
    20,
    12.5,
)


def odd_rows(seed: int, frames: int, final: bool) -> EpisodeRows:
    """Random values, with those that conversions like to lose: NaN, -0.0, very large and small numbers."""
    rng = np.random.default_rng(seed)
    n = frames + final
    obs = {
        key: rng.integers(0, 255, (n, *spec.shape)).astype(spec.dtype)
        if spec.dtype.startswith(("uint", "int"))
        else (1e3 * rng.standard_normal((n, *spec.shape))).astype(spec.dtype)
        for key, spec in ODD.obs.items()
    }
    obs["state"][0] = -0.0, 1e-300
    obs["depth.front"][0, 0, 0] = np.nan
    obs["count"][0] = -(2**62), 2**62 + 1
    labels = EpisodeMeta(
        complete=seed % 2 == 0,
        success=(None, True, False)[seed % 3],
        task="" if seed == 0 else 'séparer "les"\nbriques',
        seed=None if seed == 1 else 2**40 + seed,
        operator="ann",
        recorded_at="2026-01-31T12:00:00Z",
        info=with_mark({"note": [1, {"x": None}]}, RewardMark(0, -1.0, "ann", "2026-01-31T12:00:00Z")),
    )
    return EpisodeRows(
        obs,
        rng.uniform(-1, 1, (frames, 1)).astype(np.float32),
        rng.standard_normal(frames).astype(np.float32),
        rng.random(frames) > 0.5,
        rng.random(frames) > 0.5,
        {"t_capture_ns": rng.integers(0, 2**62, frames)},
        labels,
    )


def write_odd(path: Path) -> Path:
    """Three episodes of 3, 1 and 5 frames; the second has no observation after its last action."""
    writer = DatasetWriter.create(path, ODD, stamps=("t_capture_ns",), min_free_bytes=0, durable=False)
    for seed, (frames, final) in enumerate([(3, True), (1, False), (5, True)]):
        write_rows(writer, odd_rows(seed, frames, final))
    writer.close()
    return path
