"""Comparison of two datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from robo_rl.data.formats.rows import labels_json, rows_of
from robo_rl.data.store import EpisodeStore

VIDEO_ERROR = 12  # grey levels of a smooth image; H.264 keeps colours at half the resolution


def errors(one: Path, other: Path, tolerance: int = 0) -> list[str]:
    """Differences between two datasets: values, labels, contract. tolerance: of images, in grey levels."""
    found = []
    if EpisodeStore(one).spec != EpisodeStore(other).spec:
        found.append("contract")
    for a, b in zip(EpisodeStore(one), EpisodeStore(other), strict=True):
        x, y = rows_of(a), rows_of(b)
        pairs: dict[str, tuple[Any, Any]] = {key: (x.obs[key], y.obs[key]) for key in x.obs}
        pairs |= {
            k: (getattr(x, k), getattr(y, k)) for k in ("action", "reward", "terminated", "intervention")
        }
        pairs |= {f"stamps {k}": (x.stamps[k], y.stamps.get(k)) for k in x.stamps}
        for name, (left, right) in pairs.items():
            slack = tolerance if name.startswith("image.") else 0
            same = right is not None and (left.dtype, left.shape) == (right.dtype, right.shape)
            if not same or (
                np.abs(left.astype(int) - right.astype(int)).max() > slack
                if slack
                else left.tobytes() != right.tobytes()
            ):
                found.append(f"episode {a.number}: {name}")
        if labels_json(x.labels) != labels_json(y.labels):
            found.append(f"episode {a.number}: labels")
    return found
