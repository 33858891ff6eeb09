"""Labels of our own exports, for an import with another contract or other names of observations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from numpy import ndarray

from robo_rl.core.shapes import Float32
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.schema import EpisodeMeta
from robo_rl.data.formats.rows import EpisodeRows, ExportedEpisode, action_checksum


class ExportedLabels:
    """Finds the entry of an export that describes an episode.

    Other programs delete and reorder episodes, so an entry is found by the checksum of the episode's actions.
    Exports of older releases have none: their entries count by position, if there are as many as episodes.
    """

    def __init__(self, known: Sequence[ExportedEpisode], episodes: int) -> None:
        self._known = known
        self.by_position = len(known) == episodes and any(each.action_crc32c is None for each in known)
        counts = Counter(each.action_crc32c for each in known)
        self._unique = {
            each.action_crc32c: i for i, each in enumerate(known) if counts[each.action_crc32c] == 1
        }
        self._unmatched = 0

    def number(self, position: int, action: Float32[ndarray, "n a"]) -> int | None:
        """Number of the entry of the episode at this position, with these actions; None if none fits."""
        found = self._number(position, action)
        self._unmatched += bool(self._known) and found is None
        return found

    def _number(self, position: int, action: Float32[ndarray, "n a"]) -> int | None:
        if self.by_position:
            return position
        crc = action_checksum(action)
        if position < len(self._known) and self._known[position].action_crc32c == crc:
            return position
        return self._unique.get(crc)

    def notes(self) -> list[str]:
        """A sentence on episodes whose labels were not found; none if there are no such episodes."""
        if not self._unmatched:
            return []
        return [
            f"The labels of {counted(self._unmatched, 'episode')} in the record of the export were not used: "
            "episodes or their actions were changed after it."
        ]


def labelled(rows: EpisodeRows, known: EpisodeMeta | None, task: str) -> EpisodeRows:
    """`rows` with the labels of the export; an instruction and a success in the format itself come first.

    task: instruction instead of every other one; empty: none given.
    """
    labels = rows.labels
    if known is not None:
        success = known.success if labels.success is None else labels.success
        labels = replace(known, success=success, task=labels.task or known.task)
    return replace(rows, labels=replace(labels, task=task or labels.task, final_obs=False))
