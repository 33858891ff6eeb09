"""Contents of a dataset as JSON values, for `robo-rl data info`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Int64
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.recover import leftovers
from robo_rl.data.episodes.schema import NO_STAMP

LAGS = (("t_capture_ns", "t_receive_ns"), ("t_receive_ns", "t_command_ns"))


def dataset_info(path: str | Path) -> dict[str, Any]:
    """Counts, shapes, labels and delays of a dataset. Raises DataError if `path` is no dataset."""
    store = EpisodeStore(path)
    totals, env = store.totals, store.spec
    frames = [episode.frames for episode in store]
    return {
        "path": str(path),
        "env": env.name,
        "control_hz": env.control_hz,
        "max_episode_steps": env.max_episode_steps,
        "image_codec": store.meta.image_codec,
        "episodes": totals.episodes,
        "incomplete": totals.incomplete,
        "interrupted": len(leftovers(store.path)),
        "frames": totals.frames,
        "seconds": totals.seconds,
        "frames_per_episode": {"min": min(frames), "median": float(np.median(frames)), "max": max(frames)}
        if frames
        else None,
        "labelled": totals.labelled,
        "successes": totals.successes,
        "tasks": dict(Counter(episode.meta.task for episode in store)),
        "terminated_episodes": sum(bool(episode.terminated[-1]) for episode in store),
        "intervention_frames": sum(int(episode.intervention.sum()) for episode in store),
        "bytes": sum(p.stat().st_size for p in store.path.rglob("*") if p.is_file()),
        "obs": {
            key: {"shape": list(s.shape), "dtype": s.dtype, "unit": s.unit} for key, s in env.obs.items()
        },
        "action": {
            "dim": env.action.dim,
            "low": env.action.low,
            "high": env.action.high,
            "unit": env.action.unit,
        },
        "delays_ms": _delays_ms(store),
        "info": store.meta.info,
    }


def _delays_ms(store: EpisodeStore) -> dict[str, dict[str, float]]:
    """Median and 99th percentile of delays between stamps of the same frame, if both were recorded."""
    delays: dict[str, dict[str, float]] = {}
    for start, end in LAGS:
        if {start, end} <= set(store.meta.stamps):
            lags = [_lag_ns(*(episode.stamps()[name] for name in (start, end))) for episode in store]
            lag_ms = np.concatenate([np.zeros(0), *lags]) / 1e6
            if lag_ms.size:
                p50, p99 = np.percentile(lag_ms, [50, 99])
                delays[f"{start.removesuffix('_ns')} -> {end.removesuffix('_ns')}"] = {
                    "p50": float(p50),
                    "p99": float(p99),
                }
    return delays


def _lag_ns(start: Int64[ndarray, " n"], end: Int64[ndarray, " n"]) -> Int64[ndarray, " k"]:
    known = (start != NO_STAMP) & (end != NO_STAMP)
    return np.asarray(end[known] - start[known])
