"""Seeds and noise that depend on names and counters only, not on earlier draws."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Integral
from typing import TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError

Seeds: TypeAlias = int | Iterable[int]  # of episodes, see `episode_seeds`
MAX_SEED = 2**31 - 1  # accepted by every third-party environment


def derive_seed(*path: int | str) -> int:
    """Seed in [0, 2^31) from a path such as ("eval", 3, 17); the same path gives the same seed on every
    machine.
    """
    digest = hashlib.sha256("/".join(map(str, path)).encode()).digest()
    return int.from_bytes(digest[:8], "little") % MAX_SEED


def generator(*path: int | str, device: str | torch.device = "cpu") -> torch.Generator:
    """Torch generator seeded by `derive_seed(*path)`."""
    return torch.Generator(device=device).manual_seed(derive_seed(*path))


def episode_noise(seed: int, decisions: int, shape: tuple[int, ...]) -> Tensor:
    """Standard normal noise of one episode, (decisions, *shape) float32.

    Row d belongs to decision d, so two policies on the same seed get the same draw at the same decision. This
    is the pairing that McNemar's test needs.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    return torch.from_numpy(rng.standard_normal((decisions, *shape), dtype=np.float32))


class EpisodeSeeds(Iterator[int]):
    """Endless episode seeds derive_seed(*root, i) for i = start, start + 1, ...

    `count` is the i of the next seed: `EpisodeSeeds(root, count)` continues from a saved `root` and `count`.
    repeat: episodes in turn that have the same seed; i counts them all.
    """

    def __init__(self, root: int | str | Sequence[int | str], start: int = 0, repeat: int = 1) -> None:
        self.root: tuple[int | str, ...] = (root,) if isinstance(root, int | str) else tuple(root)
        self.count, self.repeat = start, repeat

    def __next__(self) -> int:
        seed = derive_seed(*self.root, self.count // self.repeat)
        self.count += 1
        return seed


def episode_seeds(seeds: Seeds, num_envs: int) -> Iterator[int]:
    """Seeds for the episodes of `num_envs` lanes: an iterator itself, all that follows from a number, or a
    list and, after it, others that follow from it.

    Raises TypeError for anything else, ConfigError for a list that is too short or has negative numbers.
    """
    if isinstance(seeds, Iterator):
        return seeds
    if _is_whole(seeds):
        if seeds < 0:
            raise ConfigError(f"The seed {seeds} cannot be used, expected: a whole number >= 0.")
        return EpisodeSeeds(int(seeds))
    if isinstance(seeds, Iterable) and not isinstance(seeds, str | bytes | Mapping):
        first = seeds.tolist() if isinstance(seeds, np.ndarray | Tensor) else list(seeds)
        if all(map(_is_whole, first)):
            return _listed([int(seed) for seed in first], num_envs)
    raise TypeError(
        f"seeds is {seeds!r:.60}, expected: a whole number, a list of them, or an iterator of them."
    )


def _listed(first: Sequence[int], num_envs: int) -> Iterator[int]:
    if len(first) < num_envs or min(first) < 0:
        raise ConfigError(
            f"Found the seeds {list(first)}, expected at least {num_envs}, one for each lane, none below 0."
        )
    return chain(first, EpisodeSeeds(("after", *first)))


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)
