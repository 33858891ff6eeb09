"""Actors: networks from (features, ctx) to u in [-1, 1]^dim. They start at u = 0, which reproduces the
base.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.nets.deep.network import InputNorm, OneHead, make_deep
from robo_rl.nets.mlp import mlp

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


@dataclass(frozen=True)
class ActorConfig:
    """Settings of an actor. kind: "gaussian" (SAC) or "deterministic" (TD3). in_dim: size of features and
    ctx.
    """

    kind: str
    in_dim: int
    dim: int
    hidden: tuple[int, ...] = (128, 128)
    layer_norm: bool = True
    init_std: float = 1.0  # gaussian: initial standard deviation before the tanh
    squash: bool = True  # tanh on the output
    activation: str = "relu"  # activation of the hidden layers
    network: str = "mlp"  # or a name of `nets.deep.network`, which has its own norms and activations
    normalize: bool = False  # features are normalised by statistics that the learner writes; not for mlp
    log_std_min: float = LOG_STD_MIN  # gaussian: lower end of the range of the log standard deviation
    clip_std: bool = False  # gaussian: the log standard deviation is clipped to its range, not squashed

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ActorConfig:
        return cls(**data | {"hidden": tuple(data["hidden"])})


class Actor(nn.Module):
    """Base of all actors."""

    def __init__(self, config: ActorConfig, out_dim: int) -> None:
        super().__init__()
        self.config = config
        self.net = _network(config, out_dim)

    def mode(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b dim"]:
        """The deterministic action."""
        mean = self.net(x)[:, : self.config.dim]
        return torch.tanh(mean) if self.config.squash else mean

    @torch.no_grad()
    def restart(self) -> None:
        """Set the last layer to zero: u = 0, and the initial standard deviation of a Gaussian actor."""
        last = self.net[-1]
        if isinstance(last, OneHead):
            last.deep.zero_output()
            return
        for parameter in last.parameters():
            parameter.zero_()

    @torch.no_grad()
    def start_at(self, u: Float[Tensor, " dim"]) -> None:
        """Initialise the output to this u, inside (-1, 1), for learning from scratch, where 0 is no neutral
        action.
        """
        last = self.net[-1]
        bias = last.deep.output_bias[0, 0] if isinstance(last, OneHead) else last.get_parameter("bias")
        bias[: self.config.dim] = torch.atanh(u) if self.config.squash else u

    @property
    def input_norm(self) -> InputNorm | None:
        """Normalisation of the inputs; None: there is none."""
        last = self.net[-1]
        return last.norm if isinstance(last, OneHead) else None

    def act(self, features: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"]) -> Float[Tensor, "b dim"]:
        """`mode` of the concatenated features and context."""
        return self.mode(torch.cat([features, ctx], dim=-1) if ctx.shape[1] else features)

    def forward(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b dim"]:
        return self.mode(x)


class DeterministicActor(Actor):
    """u = tanh(net(x)), with a zero-initialised last layer."""

    def __init__(self, config: ActorConfig) -> None:
        super().__init__(config, config.dim)


class GaussianActor(Actor):
    """u = tanh(m + s * eps), eps ~ N(0, I): the tanh-squashed Gaussian of SAC (Haarnoja et al. 2018, appendix
    C).

    m starts at 0 and s at `init_std`. The log standard deviation is squashed smoothly into [-5, 2], or from
    `log_std_min` on; with `clip_std` it is clipped to that range, as in the paper's code.
    """

    def __init__(self, config: ActorConfig) -> None:
        super().__init__(config, 2 * config.dim)
        start = math.log(config.init_std)
        span = (start - config.log_std_min) / (LOG_STD_MAX - config.log_std_min)
        self.log_std_bias = start if config.clip_std else math.atanh(2.0 * span - 1.0)

    def distribution(self, x: Float[Tensor, "b i"]) -> tuple[Float[Tensor, "b dim"], Float[Tensor, "b dim"]]:
        """Mean and log standard deviation before the tanh."""
        mean, raw = self.net(x).chunk(2, dim=-1)
        low, shifted = self.config.log_std_min, raw + self.log_std_bias
        if self.config.clip_std:
            return mean, shifted.clamp(low, LOG_STD_MAX)
        return mean, low + (LOG_STD_MAX - low) * 0.5 * (torch.tanh(shifted) + 1.0)

    def sample(
        self, x: Float[Tensor, "b i"], eps: Float[Tensor, "b dim"]
    ) -> tuple[Float[Tensor, "b dim"], Float[Tensor, " b"]]:
        """u and its log-density, reparameterised through the standard normal `eps` that the caller draws."""
        mean, log_std = self.distribution(x)
        pre = mean + log_std.exp() * eps
        log_prob = -0.5 * eps.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        if not self.config.squash:
            return pre, log_prob.sum(-1)
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)): stable for large |x|.
        log_det = 2.0 * (math.log(2.0) - pre - nn.functional.softplus(-2.0 * pre))
        return torch.tanh(pre), (log_prob - log_det).sum(-1)


def _network(config: ActorConfig, out_dim: int) -> nn.Sequential:
    """Network of an actor, whose outputs start at zero, or small where the weights have a fixed length."""
    if config.network == "mlp":
        norm, activation = config.layer_norm, config.activation
        return mlp(
            config.in_dim, config.hidden, out_dim, layer_norm=norm, activation=activation, zero_last=True
        )
    parts = out_dim // config.dim  # mean and log standard deviation
    deep = make_deep(config.network, config.in_dim, config.hidden, out_dim, heads=1, parts=parts)
    deep.zero_output()
    return nn.Sequential(OneHead(deep, InputNorm(config.in_dim) if config.normalize else None))


def make_actor(config: ActorConfig) -> GaussianActor | DeterministicActor:
    """Actor of this configuration, initialised to u = 0. Raises ConfigError for an unknown kind."""
    if config.kind == "gaussian":
        return GaussianActor(config)
    if config.kind == "deterministic":
        return DeterministicActor(config)
    raise ConfigError(f"actor='{config.kind}' is unknown; use gaussian (SAC) or deterministic (TD3).")
