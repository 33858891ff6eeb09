"""Batches mixed from several replay buffers (online, base, demonstrations, interventions) by fraction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import setting
from robo_rl.data.replay import Batch, Replay


@dataclass
class MixConfig:
    """Fraction of the batch from each buffer. They sum to 1; an empty buffer's share goes to the others."""

    online: float = setting(1.0, "share of a batch from transitions of training", at_least=0.0)
    base: float = setting(
        0.0,
        "share of a batch from transitions of the base alone, which anchor the critics (DAWN)",
        at_least=0.0,
    )
    demo: float = setting(0.0, "share of a batch from demonstrations", at_least=0.0)
    intervention: float = setting(
        0.0, "share of a batch from steps in which a human intervened", at_least=0.0
    )


class ReplayMix:
    """Named replay buffers. One with fraction 0 does not exist."""

    def __init__(self, stores: Mapping[str, Replay], fractions: Mapping[str, float]) -> None:
        used = used_fractions(fractions)
        if missing := used.keys() - stores.keys():
            raise ConfigError(
                f"`mix` names {sorted(missing)}, for which there is no data. Available: {sorted(stores)}."
            )
        self.stores, self.fractions = dict(stores), used

    def __getitem__(self, name: str) -> Replay:
        return self.stores[name]

    def ready(self) -> tuple[str, ...]:
        """Names of the buffers that hold data. Reads the device while one is empty."""
        return tuple(name for name in self.fractions if not self.stores[name].empty)

    def sample(self, size: int, generator: torch.Generator, **how: Any) -> Batch:
        """Batch of `size` decisions, see `batches`."""
        return self.batches(1, size, generator, **how)[0]

    def batches(
        self,
        count: int,
        size: int,
        generator: torch.Generator,
        *,
        gamma: float,
        n_step: int,
        timeout_is_failure: bool,
        ready: tuple[str, ...] | None = None,
    ) -> list[Batch]:
        """`count` batches of `size` decisions, ordered by buffer, drawn at once.

        ready: buffers to draw from; None: `ready()`.
        """
        ready = self.ready() if ready is None else ready
        if not ready:
            raise ConfigError(
                "All replay buffers are empty: collect more with the base first (raise base_steps)."
            )
        sizes = shares(size, [self.fractions[name] for name in ready])
        parts = [
            self.stores[name].sample(
                count * share, generator, gamma=gamma, n_step=n_step, timeout_is_failure=timeout_is_failure
            )
            for name, share in zip(ready, sizes, strict=True)
        ]
        if count > 1:
            return interleaved(parts, count)
        return [parts[0] if len(parts) == 1 else concatenate(parts)]

    def state_dict(self) -> dict[str, Any]:
        return {name: store.state_dict() for name, store in self.stores.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, store in self.stores.items():
            store.load_state_dict(state[name])


def used_fractions(fractions: Mapping[str, float]) -> dict[str, float]:
    """The fractions above 0. Raises ConfigError if they do not sum to 1."""
    used = {name: fraction for name, fraction in fractions.items() if fraction > 0.0}
    if abs(sum(used.values()) - 1.0) > 1e-6:
        given = " ".join(f"mix.{name}={fraction:g}" for name, fraction in fractions.items())
        raise ConfigError(
            f"The fractions of `mix` must sum to 1, found {given}, which sum to {sum(used.values()):g}. "
            "Change one of them."
        )
    return used


def shares(size: int, fractions: list[float]) -> list[int]:
    """`size` split in these proportions into whole numbers that sum to `size`."""
    borders = [round(size * part / sum(fractions)) for part in accumulate(fractions, initial=0.0)]
    return [end - start for start, end in pairwise(borders)]


def concatenate(parts: list[Batch]) -> Batch:
    """One batch of all parts, in order."""
    return Batch(**{name: _joined([getattr(part, name) for part in parts]) for name in Batch.__slots__})


def interleaved(parts: list[Batch], count: int) -> list[Batch]:
    """`count` batches, each of an equal share of every part, in order. The parts hold no pictures."""
    columns: list[Sequence[Any]] = []
    for name in Batch.__slots__:
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], dict):
            columns.append([{}] * count)
            continue
        blocks = [value.unflatten(0, (count, len(value) // count)) for value in values]
        columns.append((blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)).unbind(0))
    return [Batch(*values) for values in zip(*columns, strict=True)]


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: torch.cat([value[key] for value in values]) for key in values[0]}
    return torch.cat(values)
