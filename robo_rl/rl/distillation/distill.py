"""Distillation of any policy into a head that computes the chunk in one network call.

The main loss is same-noise regression: head(obs, noise) is fitted to the chunk that the teacher's K steps
reach from the same noise. A multi-modal teacher stays multi-modal, because each noise has one chunk. The
second loss is consistency distillation: neighbouring points of the teacher's sampling path must map to the
same chunk.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Float
from robo_rl.nets.optim.ema import ema_update

# (features, noise) -> points, times
SamplingPath = Callable[[Tensor, Tensor], tuple[list[Tensor], list[float]]]
# parts of a Distiller that have a state of their own
_PARTS = ("head", "average", "slow", "_optimizer", "_schedule")


@runtime_checkable
class Head(Protocol):
    """Network that distillation trains; also an nn.Module."""

    def jump(self, features: Tensor, x: Tensor, t: Tensor) -> Tensor: ...


@dataclass
class DistillConfig:
    """Settings of distillation: the head's optimiser, both losses and both moving averages."""

    steps: int = setting(4000, "updates of each round", at_least=1)
    batch_size: int = setting(256, "labelled states per update", at_least=1)
    lr: float = setting(1e-3, "learning rate at the first update", at_least=0.0)
    final_lr: float = setting(0.01, "fraction of lr at the last update", at_least=0.0)
    consistency: float = setting(
        0.0, "weight of the consistency loss; needs a teacher that samples in several steps", at_least=0.0
    )
    consistency_decay: float = setting(
        0.95, "decay of the target network's moving average", at_least=0.0, at_most=1.0
    )
    ema: float = setting(0.999, "decay of the moving average that is the result", at_least=0.0, at_most=1.0)
    seed: int = setting(0, "seed of weights, states and noise", at_least=0)
    log_every: int = setting(100, "updates between two log lines", at_least=1)


@dataclass(frozen=True, slots=True)
class DistillData:
    """n labelled states: features, the teacher's noise and its chunk, in [-1, 1]."""

    features: Float[Tensor, "n f"]
    noise: Float[Tensor, "n Tp a"]
    chunk: Float[Tensor, "n Tp a"]
    weight: Float[Tensor, "n Tp"]  # 0 where the teacher's chunk was cut off by the end of an episode

    def __len__(self) -> int:
        return len(self.features)

    def __add__(self, other: DistillData) -> DistillData:
        pairs = [
            (getattr(self, name), getattr(other, name)) for name in ("features", "noise", "chunk", "weight")
        ]
        return DistillData(*(torch.cat(pair) for pair in pairs))


def same_noise_loss(
    head: Head,
    features: Float[Tensor, "b f"],
    noise: Float[Tensor, "b Tp a"],
    chunk: Float[Tensor, "b Tp a"],
    weight: Float[Tensor, "b Tp"],
) -> Tensor:
    """Mean squared distance between the head's chunk and the teacher's, from the same noise."""
    error = (head.jump(features, noise, torch.ones(len(noise))) - chunk).square().mean(dim=2)
    return (error * weight).sum() / weight.sum().clamp(min=1.0)


def consistency_loss(
    head: Head,
    target: Head,
    features: Float[Tensor, "b f"],
    points: list[Tensor],
    times: list[float],
    k: Tensor,
) -> Tensor:
    """Mean |jump(x_k, t_k) - jump'(x_{k+1}, t_{k+1})|^2, jump' the target network (Luo et al. 2023, LCM).

    k: (b,) int64, the transition of each sample.
    """
    stack, grid = torch.stack(points, dim=1), torch.tensor(times)
    rows = torch.arange(len(k))
    with torch.no_grad():
        goal = target.jump(features, stack[rows, k + 1], grid[k + 1]).clamp(-1.0, 1.0)
    return (head.jump(features, stack[rows, k], grid[k]) - goal).square().mean()


class Distiller:
    """Trains `head` in place on the teacher's labels, update by update. `state_dict` holds all that changes.

    Raises ConfigError if `consistency` is above 0 and the teacher has no sampling path (a step-wise
    residual).
    """

    def __init__(
        self, head: nn.Module, data: DistillData, config: DistillConfig, path: SamplingPath | None = None
    ) -> None:
        if config.consistency > 0.0 and path is None:
            raise ConfigError(
                "consistency > 0 needs a teacher that goes from noise to action in several steps, which a "
                "residual policy does not. Set consistency=0."
            )
        self.head, self.data, self.config, self.path = head, data, config, path
        self.average, self.slow = copy.deepcopy(head), copy.deepcopy(head)
        self.step = 0  # updates done
        self._rng = generator("distill", config.seed)
        trained = [p for name, p in head.named_parameters() if not name.startswith("encoder")]
        self._optimizer = torch.optim.AdamW(trained, lr=config.lr, weight_decay=1e-6, fused=True)
        self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            self._optimizer, config.steps, config.lr * config.final_lr
        )

    @property
    def done(self) -> bool:
        return self.step >= self.config.steps

    def update(self) -> dict[str, Tensor]:
        """Losses of one update on a random batch."""
        config, data, head = self.config, self.data, self.head
        index = torch.randint(len(data), (config.batch_size,), generator=self._rng)
        features, noise = data.features[index], data.noise[index]
        loss = same_noise_loss(head, features, noise, data.chunk[index], data.weight[index])  # type: ignore[arg-type]
        values = {"distill/same_noise": loss.detach()}
        if config.consistency > 0.0 and self.path is not None:
            with torch.no_grad():
                points, times = self.path(features, noise)
            k = torch.randint(len(times) - 1, (len(index),), generator=self._rng)
            second = consistency_loss(head, self.slow, features, points, times, k)  # type: ignore[arg-type]
            loss = loss + config.consistency * second
            values["distill/consistency"] = second.detach()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._schedule.step()
        self.step += 1
        ema_update(self.average, head, min(config.ema, 1.0 - (1.0 + self.step) ** -0.75))
        ema_update(self.slow, head, config.consistency_decay)
        return values

    def student(self) -> nn.Module:
        """The moving average of the head, frozen."""
        return self.average.eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "rng": self._rng.get_state(),
            **{name: getattr(self, name).state_dict() for name in _PARTS},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = int(state["step"])
        self._rng.set_state(state["rng"])
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])


def distill(
    head: nn.Module, data: DistillData, config: DistillConfig, *, path: SamplingPath | None = None
) -> nn.Module:
    """Train `head` in place on the teacher's labels; returns its moving average, frozen."""
    distiller = Distiller(head, data, config, path)
    while not distiller.done:
        distiller.update()
    return distiller.student()
