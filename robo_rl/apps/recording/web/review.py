"""Committed episodes for the page: a list, pictures of frames, and curves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from hardware.camera.jpeg import encoded
from hardware.loop.observation import IMAGE
from robo_rl.core.errors import DataError
from robo_rl.data.edit.swap import has_former_state
from robo_rl.data.episodes.reader import Episode, EpisodeStore
from robo_rl.data.episodes.reward_marks import reward_marks

QUALITY = 85
MOST_POINTS = 400  # of a curve


class Review:
    """Reads the dataset that is being recorded; opened again when an episode was committed."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._store: EpisodeStore | None = None
        self._rows: list[dict[str, Any]] = []
        self._count = -1

    def episodes(self, count: int) -> list[dict[str, Any]]:
        """A row for each episode, oldest first. count: changes when the dataset does."""
        with self._lock:
            self._refresh(count)
            return self._rows

    @property
    def can_undo(self) -> bool:
        """True when the state before the last edit is kept."""
        return has_former_state(self._path)

    def picture(self, number: int, camera: str, frame: int) -> bytes:
        """JPEG of one frame. Raises DataError for a frame that does not exist."""
        episode, key = self._episode(number), IMAGE + camera
        if key not in episode.dataset.env.obs:
            raise DataError(f"The dataset has no camera '{camera[:40]}'.")
        if not 0 <= frame < episode.obs_rows:
            raise DataError(f"Episode {number} has {episode.obs_rows} pictures, there is none at {frame}.")
        pixels = np.ascontiguousarray(episode.obs(key, frame, frame + 1)[0])
        return encoded(pixels, QUALITY).tobytes()

    def curves(self, number: int) -> dict[str, Any]:
        """State and action of an episode, thinned, and where a human intervened."""
        episode = self._episode(number)
        rows = np.unique(np.linspace(0, episode.frames - 1, min(episode.frames, MOST_POINTS)).astype(int))
        return {
            "frames": episode.frames,
            "rows": rows.tolist(),
            "state": np.round(episode.obs("state")[rows], 4).tolist(),
            "action": np.round(episode.action[rows], 4).tolist(),
            "intervention": episode.intervention[rows].tolist(),
        }

    def _episode(self, number: int) -> Episode:
        with self._lock:
            for episode in self._store or ():
                if episode.number == number:
                    return episode
        raise DataError(f"There is no episode {number}; load the list again.")

    def _refresh(self, count: int) -> None:
        if count != self._count:
            self._store = EpisodeStore(self._path)
            self._rows = [_row(episode) for episode in self._store]
            self._count = count


def _row(episode: Episode) -> dict[str, Any]:
    meta = episode.meta
    return {
        "number": episode.number,
        "frames": meta.frames,
        "seconds": round(meta.frames / episode.dataset.env.control_hz, 1),
        "success": meta.success,
        "complete": meta.complete,
        "task": meta.task,
        "operator": meta.operator,
        "recorded_at": meta.recorded_at,
        "marks": [[mark.frame, mark.reward] for mark in reward_marks(meta)],
        "policy": str(meta.info.get("policy", "")),
    }
