"""Seeds and noise that depend on names and counters only, not on earlier draws."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

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
