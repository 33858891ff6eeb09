"""Batches mixed from several replay buffers (online, base, demonstrations, interventions) by fraction."""

from __future__ import annotations

from collections.abc import Mapping
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

    online: float = setting(1.0, "transitions of training", at_least=0.0)
    base: float = setting(0.0, "transitions of the base alone, which anchor the critics (DAWN)", at_least=0.0)
    demo: float = setting(0.0, "demonstrations", at_least=0.0)
    intervention: float = setting(0.0, "steps in which a human intervened", at_least=0.0)


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

    def sample(
        self,
        size: int,
        generator: torch.Generator,
        *,
        gamma: float,
        n_step: int,
        timeout_is_failure: bool,
        ready: tuple[str, ...] | None = None,
    ) -> Batch:
        """Batch of `size` decisions, ordered by buffer. ready: buffers to draw from; None: `ready()`."""
        ready = self.ready() if ready is None else ready
        if not ready:
            raise ConfigError(
                "All replay buffers are empty: collect more with the base first (raise base_steps)."
            )
        counts = shares(size, [self.fractions[name] for name in ready])
        parts = [
            self.stores[name].sample(
                count, generator, gamma=gamma, n_step=n_step, timeout_is_failure=timeout_is_failure
            )
            for name, count in zip(ready, counts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else concatenate(parts)

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


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: torch.cat([value[key] for value in values]) for key in values[0]}
    return torch.cat(values)
