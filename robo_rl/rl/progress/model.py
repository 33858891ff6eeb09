"""Model of progress: an ensemble of small networks from features to [0, 1], and its training.

Each member leaves out one part of the episodes, so the error on episodes that a member has not seen is known
without taking any away from the ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.nets.critic import CriticEnsemble

MEMBERS = 5  # at most; one for each episode if there are fewer
HIDDEN = (64, 64)
UPDATES, BATCH, RATE = 800, 256, 1e-3
DECAY = 1e-2  # of AdamW
NOISE = 0.1  # standard deviation that is added to the standardised features in training
FLOOR = 0.1  # least scale of a feature, as a fraction of the mean scale: features that hardly vary count less
FARTHEST = 5.0  # bound of standardised features


@dataclass(frozen=True, slots=True)
class LabelledEpisode:
    """Features of n observations of one episode, and their progress. milestones: between start and end."""

    features: Float[Tensor, "n f"]
    progress: Float[Tensor, " n"]
    milestones: int


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a model learned from, and its mean absolute error in progress on episodes that it has not seen.

    constant_error: that of the mean progress as the only prediction.
    """

    episodes: int
    milestones: float  # mean per episode
    members: int
    held_out_error: float
    constant_error: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"Progress model: {self.episodes} demonstrations, {self.milestones:.1f} milestones each; error "
            f"{self.held_out_error:.3f} on demonstrations that a member has not seen (a constant: "
            f"{self.constant_error:.3f})."
        )


class ProgressModel(nn.Module):
    """Phi(x) = mean over members of sigmoid(net(standardised x)), in [0, 1]."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int, members: int, hidden: Sequence[int] = HIDDEN) -> None:
        super().__init__()
        self.net = CriticEnsemble(width, hidden, members)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def standardise(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b f"]:
        """Features with the mean and the scale of the demonstrations, bounded."""
        return ((features - self.mean) / self.scale).clamp(-FARTHEST, FARTHEST)

    def members(self, x: Float[Tensor, "b f"]) -> Float[Tensor, "k b"]:
        """Progress by each member, from standardised features."""
        return torch.sigmoid(self.net(x, x[:, :0]))

    def forward(self, features: Float[Tensor, "b f"]) -> Float[Tensor, " b"]:
        return self.members(self.standardise(features)).mean(dim=0)


def check_enough(episodes: int) -> None:
    """Raise ConfigError for fewer than two episodes."""
    if episodes < 2:
        raise ConfigError(
            f"A model of progress needs two successful demonstrations or more, found {episodes}. Record "
            "more, or set method.progress_weight=0."
        )


def fit_progress(
    episodes: Sequence[LabelledEpisode], generator: torch.Generator, updates: int = UPDATES
) -> tuple[ProgressModel, ProgressReport]:
    """Train a model on these episodes, on their device. Member i leaves out episodes i, i + k, i + 2 k, ...

    Raises ConfigError for fewer than two episodes.
    """
    check_enough(len(episodes))
    features = torch.cat([each.features for each in episodes])
    progress = torch.cat([each.progress for each in episodes])
    number = torch.cat([torch.full_like(each.progress, i) for i, each in enumerate(episodes)])
    count = min(MEMBERS, len(episodes))
    held_out = number.remainder(count) == torch.arange(count, device=number.device).unsqueeze(1)  # (k, n)
    seed = int(torch.randint(2**31, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ProgressModel(features.shape[1], count).to(features.device)
    spread = features.std(dim=0)
    model.mean.copy_(features.mean(dim=0))
    model.scale.copy_(spread.clamp(min=max(float(FLOOR * spread.mean()), 1e-6)))
    _train(model, model.standardise(features), progress, (~held_out).float(), generator, updates)
    with torch.no_grad():
        wrong = (model.members(model.standardise(features)) - progress).abs()
    report = ProgressReport(
        episodes=len(episodes),
        milestones=sum(each.milestones for each in episodes) / len(episodes),
        members=count,
        held_out_error=float(wrong[held_out].mean()),
        constant_error=float((progress - progress.mean()).abs().mean()),
    )
    return model.eval().requires_grad_(False), report


def _train(
    model: ProgressModel,
    x: Float[Tensor, "n f"],
    progress: Float[Tensor, " n"],
    used: Float[Tensor, "k n"],
    generator: torch.Generator,
    updates: int,
) -> None:
    """Minimise the squared error of each member on the rows that it uses."""
    optimiser = torch.optim.AdamW(model.net.parameters(), lr=RATE, weight_decay=DECAY)
    for _ in range(updates):
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        noise = NOISE * torch.randn(BATCH, x.shape[1], generator=generator)
        wrong = (model.members(x[rows] + noise) - progress[rows]).square()
        loss = (wrong * used[:, rows]).sum() / BATCH
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
