"""Values of critics of a distribution: equally spaced atoms, and projections onto them, or quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

_UNIT = 2.0**40  # probabilities are summed in whole multiples of 1 / _UNIT
_HL_GAUSS_WIDTH = 0.75  # standard deviation of HL-Gauss in distances of atoms (Farebrother et al. 2024)


@dataclass(frozen=True, slots=True)
class Support:
    """n atoms z_j from `low` to `high`, `step` apart."""

    atoms: int
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.atoms < 2 or not -math.inf < self.low < self.high < math.inf:
            raise ConfigError(
                f"A categorical critic needs at least 2 atoms and v_min < v_max, found {self.atoms} atoms "
                f"from {self.low} to {self.high}."
            )

    @property
    def step(self) -> float:
        """Distance between two atoms."""
        return (self.high - self.low) / (self.atoms - 1)

    def values(self, device: torch.device | str) -> Float[Tensor, " n"]:
        """The atoms."""
        return torch.linspace(self.low, self.high, self.atoms, device=device)

    def mean(self, logits: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
        """sum_j z_j softmax(logits)_j: the value of a categorical critic."""
        return torch.softmax(logits, dim=-1) @ self.values(logits.device)

    def project(
        self, returns: Float[Tensor, "... m"], weights: Float[Tensor, "... m"]
    ) -> Float[Tensor, "... n"]:
        """Distribution of these returns on the atoms (C51, Bellemare et al. 2017, eq. 7):

        p_j = sum_i w_i max(0, 1 - |clip(y_i, low, high) - z_j| / step)

        Each return is split between its two neighbouring atoms, which keeps the mean. The sums are of whole
        numbers: those do not depend on the order of their terms, so that a GPU repeats them bit for bit.
        """
        place = (returns.clamp(self.low, self.high) - self.low) / self.step
        below = place.long().clamp(max=self.atoms - 2)
        upper = (weights * (place - below).clamp(0.0, 1.0) * _UNIT).long()
        lower = (weights * _UNIT).long() - upper
        total = torch.zeros(*below.shape[:-1], self.atoms, dtype=torch.long, device=below.device)
        total.scatter_add_(-1, below, lower).scatter_add_(-1, below + 1, upper)
        return total.to(returns.dtype) / _UNIT

    def smooth(self, returns: Float[Tensor, "..."]) -> Float[Tensor, "... n"]:
        """A Gaussian around each return, integrated over the cells of the atoms (HL-Gauss, Farebrother et al.
        2024, eq. 6).
        """
        half, width = 0.5 * self.step, _HL_GAUSS_WIDTH * self.step
        edges = torch.linspace(self.low - half, self.high + half, self.atoms + 1, device=returns.device)
        below = torch.erf((edges - returns.clamp(self.low, self.high).unsqueeze(-1)) / (width * math.sqrt(2)))
        return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


@dataclass(frozen=True, slots=True)
class Quantiles:
    """n equally likely returns: output i is the quantile of the return at level (i + 1/2) / n (QR-DQN, Dabney
    et al. 2018).
    """

    quantiles: int

    def __post_init__(self) -> None:
        if self.quantiles < 2:
            raise ConfigError(f"A critic of quantiles needs at least 2, found {self.quantiles}.")

    @property
    def atoms(self) -> int:
        """Number of outputs of a head."""
        return self.quantiles

    def levels(self, device: torch.device | str) -> Float[Tensor, " n"]:
        """Levels of the outputs."""
        return (torch.arange(self.quantiles, device=device) + 0.5) / self.quantiles

    def mean(self, outputs: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
        """Mean of the quantiles: Q."""
        return outputs.mean(dim=-1)


def returns_of(data: Mapping[str, Any]) -> Support | Quantiles:
    """Atoms or quantiles from their fields."""
    return Quantiles(**data) if "quantiles" in data else Support(**data)
