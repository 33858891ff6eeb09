"""Detection of repeated episodes, e.g. of two processes that recorded into one dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from robo_rl.core.text.counts import counted
from robo_rl.data.checks import Fault
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.schema import STAMPS

_SHOWN = 5
_ONCE = "Keep one of each and delete the directories of the others."

_Contents = tuple[tuple[str, tuple[int, ...], int], ...]  # name, shape and CRC-32C of every array


class RepeatedEpisodes:
    """Seeds and checksums of the episodes of a dataset, to find repeated ones."""

    def __init__(self) -> None:
        self._of_seed: dict[int, list[int]] = defaultdict(list)
        self._of_contents: dict[_Contents, list[int]] = defaultdict(list)

    def add(self, episode: Episode) -> None:
        """Add an episode with correct checksums. Stamps are ignored: they differ between recordings."""
        arrays = episode.meta.arrays.items()
        contents = tuple(sorted((name, a.shape, a.crc32c) for name, a in arrays if name != STAMPS))
        self._of_contents[contents].append(episode.number)
        if episode.meta.seed is not None:
            self._of_seed[episode.meta.seed].append(episode.number)

    def faults(self) -> Iterator[Fault]:
        """An error for identical episodes, a warning for different ones of the same seed."""
        equal = [numbers for numbers in self._of_contents.values() if len(numbers) > 1]
        if equal:
            extra = sum(len(numbers) - 1 for numbers in equal)
            text = f"{counted(extra, 'episode repeats', 'episodes repeat')} others exactly: {_groups(equal)}."
            yield Fault(None, text, _ONCE, "duplicate_episode")
        known = {tuple(numbers) for numbers in equal}
        seeds = [n for n in self._of_seed.values() if len(n) > 1 and tuple(n) not in known]
        if seeds:
            text = (
                f"{counted(len(seeds), 'seed occurs', 'seeds occur')} in several episodes: {_groups(seeds)}."
            )
            advice = "Fine for several policies on the same seeds; otherwise keep one episode per seed."
            yield Fault(None, text, advice, "repeated_seed", "warning")


def _groups(groups: list[list[int]]) -> str:
    """E.g. "2 = 5, 3 = 6 = 9, ..."."""
    shown = [" = ".join(map(str, numbers)) for numbers in groups[:_SHOWN]]
    return ", ".join([*shown, *(["..."] if len(groups) > _SHOWN else [])])
