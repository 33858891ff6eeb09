"""The seam of generative policies: a process is the mean and std of each transition, and a behaviour-cloning
loss.

A process moves a chunk from noise x_0 to the action x_K in K transitions; transition k leads from x_k to
x_{k+1}. The network sees the process time in [0, 1] (1 = noise, 0 = action), whatever the process. Nothing
here draws a random number: noise, the times of the loss and the noise of stochastic transitions are
arguments.

`level` is how stochastic a transition is. 0 is the deterministic process (DDIM with eta = 0, the flow's ODE);
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
Index = int | Tensor  # one transition for the whole batch, or (b,) int64: its own for every sample


@dataclass
class ProcessConfig:
    """Base of all process configurations."""

    name: str = "flow"
    steps: int = setting(10, "transitions when sampling (K)")


@dataclass(frozen=True)
class DenoisingTransitions:
    """The K transitions of one grid, as tables:

    mean_k = clean_k * clamp(clean_x_k * x + clean_out_k * out, -clip, clip) + mean_x_k * x + mean_out_k * out

    The first term is for processes that bound their estimate of the finished chunk; others leave `clean` at
    None.
    """

    times: Float[Tensor, " K"]  # what the network sees
    mean_x: Float[Tensor, " K"]
    mean_out: Float[Tensor, " K"]
    std: Float[Tensor, " K"]  # 0: deterministic
    clean: Float[Tensor, " K"] | None = None
    clean_x: Float[Tensor, " K"] | None = None
    clean_out: Float[Tensor, " K"] | None = None
    clip: float = float("inf")

    def time(self, k: Index, x: Float[Tensor, "b Tp a"]) -> Float[Tensor, " b"]:
        """The network's time argument at the start of transition k."""
        return self.times[k].to(x.dtype).expand(len(x))

    def stats(
        self, out: Float[Tensor, "b Tp a"], x: Float[Tensor, "b Tp a"], k: Index
    ) -> tuple[Float[Tensor, "b Tp a"], Tensor]:
        """Mean and std of x_{k+1}, given x_k and the network's output there. The std is a number or (b, 1,
        1).
        """
        mean = _at(self.mean_x, k) * x + _at(self.mean_out, k) * out
        if self.clean is not None and self.clean_x is not None and self.clean_out is not None:
            clean = _at(self.clean_x, k) * x + _at(self.clean_out, k) * out
            mean = mean + _at(self.clean, k) * clean.clamp(-self.clip, self.clip)
        return mean, _at(self.std, k)


@runtime_checkable
class Process(Protocol):
    """Implementations are nn.Modules, so that their tables travel with the weights; they offer `Config` and
    `build`.
    """

    steps: int

    def transitions(
        self, steps: int, level: float = 0.0, device: torch.device | None = None
    ) -> DenoisingTransitions:
        """The explicit grid of `steps` transitions. Raises ConfigError for a number that the process cannot
        take.
        """
        ...

    def bc_loss(
        self,
        net: Net,
        cond: Float[Tensor, "b c"],
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b Tp a"],
        u: Float[Tensor, " b"],
    ) -> Float[Tensor, " b"]:
        """Loss of each sample. noise is standard normal; u in [0, 1) places the sample in process time."""
        ...

    def config(self) -> dict[str, Any]:
        """Plain JSON values of which `process_config` makes the configuration again."""
        ...


def make_process(config: ProcessConfig) -> Process:
    """A process ready to train: computes its tables, for which diffusion needs the package `diffusers`."""
    process = lookup("process", PROCESSES, config.name).build(config)
    assert isinstance(process, Process)
    return process


def load_process(config: ProcessConfig) -> Process:
    """The process of this configuration; its tables are still empty and come with the weights."""
    process = lookup("process", PROCESSES, config.name)(config)
    assert isinstance(process, Process)
    return process


def process_config(data: Mapping[str, Any]) -> ProcessConfig:
    """The inverse of `config_json`. Raises ConfigError for a name or a setting that no process has."""
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
    """The number of transitions, or a ConfigError that says what it may be."""
    if steps < 1 or (most is not None and steps > most):
        limit = "1 or more" if most is None else f"1 to {most}"
        raise ConfigError(f"The number of sampling steps must be {limit}, found {steps}.")
    return steps


def per_sample(value: Tensor) -> Tensor:
    """(b,) -> (b, 1, 1), to scale chunks by."""
    return value.view(-1, 1, 1)


def _at(table: Tensor, k: Index) -> Tensor:
    return table[k] if isinstance(k, int) else per_sample(table[k])
