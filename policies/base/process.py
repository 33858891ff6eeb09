"""Interface of generative processes: mean and std of each transition, and a behaviour-cloning loss.

A process moves a chunk from noise x_0 to the action x_K in K transitions; transition k leads from x_k to
x_{k+1}. The network's time input is in [0, 1] for all processes (1 = noise, 0 = action). Nothing here draws
random numbers: noise, times of the loss and noise of stochastic transitions are arguments.

`level` is the noise level of transitions. 0 is the deterministic process (DDIM with eta = 0, the flow's ODE);
for diffusion it is eta (1 = DDPM), for flows the coefficient a of Flow-SDE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import Table, lookup
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Float

PROCESSES: Table = {
    "flow": ("policies.base.flow:Flow", None),
    "diffusion": ("policies.base.diffusion:Diffusion", None),
}

Net = Callable[[Tensor, Tensor, Tensor], Tensor]  # (x (b, Tp, a), t (b,), cond (b, c)) -> (b, Tp, a)
Index = int | Tensor  # one transition for the batch, or (b,) int64, one per sample


@dataclass
class ProcessConfig:
    """Base of all process configurations."""

    name: str = "flow"
    steps: int = setting(10, "transitions when sampling (K)")


@dataclass(frozen=True)
class DenoisingTransitions:
    """The K transitions of one grid, as tables:

        mean_k = clean_k * clamp(clean_x_k * x + clean_out_k * out, -clip, clip)
                 + mean_x_k * x + mean_out_k * out

    The first term is for processes that bound their estimate of the clean chunk; others leave `clean` at
    None.
    """

    times: Float[Tensor, " K"]  # time input of the network
    mean_x: Float[Tensor, " K"]
    mean_out: Float[Tensor, " K"]
    std: Float[Tensor, " K"]  # 0: deterministic
    clean: Float[Tensor, " K"] | None = None
    clean_x: Float[Tensor, " K"] | None = None
    clean_out: Float[Tensor, " K"] | None = None
    clip: float = float("inf")

    def time(self, k: Index, x: Float[Tensor, "b Tp a"]) -> Float[Tensor, " b"]:
        """Time input of the network at the start of transition k."""
        return self.times[k].to(x.dtype).expand(x.shape[0])

    def stats(
        self, out: Float[Tensor, "b Tp a"], x: Float[Tensor, "b Tp a"], k: Index
    ) -> tuple[Float[Tensor, "b Tp a"], Tensor]:
        """Mean and std of x_{k+1}, given x_k and the network's output. The std is a number or (b, 1, 1)."""
        mean = _at(self.mean_x, k) * x + _at(self.mean_out, k) * out
        if self.clean is not None and self.clean_x is not None and self.clean_out is not None:
            clean = _at(self.clean_x, k) * x + _at(self.clean_out, k) * out
            mean = mean + _at(self.clean, k) * clean.clamp(-self.clip, self.clip)
        return mean, _at(self.std, k)


@runtime_checkable
class Process(Protocol):
    """A process. Implementations are nn.Modules, so that tables are saved with the weights, with `Config` and
    `build`.
    """

    steps: int

    def transitions(
        self, steps: int, level: float = 0.0, device: torch.device | None = None
    ) -> DenoisingTransitions:
        """Grid of `steps` transitions. Raises ConfigError for a number that the process does not support."""
        ...

    def bc_loss(
        self,
        net: Net,
        cond: Float[Tensor, "b c"],
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b Tp a"],
        u: Float[Tensor, " b"],
    ) -> Float[Tensor, " b"]:
        """Loss of each sample. noise: standard normal; u in [0, 1): determines the process time."""
        ...

    def config(self) -> dict[str, Any]:
        """Configuration as JSON values, the input of `process_config`."""
        ...


def make_process(config: ProcessConfig) -> Process:
    """Process ready for training. Computes its tables, for which diffusion needs the package `diffusers`."""
    process = lookup("process", PROCESSES, config.name).build(config)
    assert isinstance(process, Process)
    return process


def load_process(config: ProcessConfig) -> Process:
    """Process of this configuration with empty tables, which are loaded with the weights."""
    process = lookup("process", PROCESSES, config.name)(config)
    assert isinstance(process, Process)
    return process


def process_config(data: Mapping[str, Any]) -> ProcessConfig:
    """Configuration from the output of `config_json`. Raises ConfigError for an unknown name or setting."""
    cls = lookup("process", PROCESSES, str(data.get("name")))
    try:
        config = cls.Config(**data)
    except TypeError as error:
        raise ConfigError(
            f"Process '{data.get('name')}' cannot be configured with {dict(data)}: {error}."
        ) from error
    assert isinstance(config, ProcessConfig)
    return config


def config_json(config: ProcessConfig) -> dict[str, Any]:
    return asdict(config)


def check_steps(steps: int, most: int | None = None) -> int:
    """The number of transitions. Raises ConfigError if it is out of range."""
    if steps < 1 or (most is not None and steps > most):
        limit = "1 or more" if most is None else f"1 to {most}"
        raise ConfigError(f"The number of sampling steps must be {limit}, found {steps}.")
    return steps


def per_sample(value: Tensor) -> Tensor:
    """(b,) -> (b, 1, 1), to scale chunks."""
    return value.view(-1, 1, 1)


def _at(table: Tensor, k: Index) -> Tensor:
    return table[k] if isinstance(k, int) else per_sample(table[k])
