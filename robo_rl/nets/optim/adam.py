"""Adam whose moments, gradients and learning rate stay where they are in memory.

A CUDA graph replays the addresses that it was captured with. Restarting and loading therefore write into the
same tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor


class StaticAdam:
    """Adam, or AdamW where `weight_decay` > 0. `step` uses the gradients in `.grad`, which start at zero."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        beta2: float = 0.999,
        beta1: float = 0.9,
    ) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        on_gpu = device.type == "cuda"
        rate = torch.tensor(lr, device=device) if on_gpu else lr  # a graph would keep a number for ever
        self._adam = (torch.optim.AdamW if weight_decay > 0.0 else torch.optim.Adam)(
            self.parameters, lr=rate, betas=(beta1, beta2), weight_decay=weight_decay, fused=True,
            capturable=on_gpu,
        )  # fmt: skip
        self._kernel = torch._fused_adamw_ if weight_decay > 0.0 else torch._fused_adam_
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        states = [self._adam.state[parameter] for parameter in self.parameters]
        self._steps = [state["step"] for state in states]
        self._lists = (  # as the kernel takes them
            self.parameters,
            [cast("Tensor", parameter.grad) for parameter in self.parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
        )

    def step(self) -> None:
        """One step down the gradients.

        The kernel is called directly: for one small network `torch.optim.Adam.step` spends more time on its
        bookkeeping than on the step.
        """
        group = self._adam.param_groups[0]
        with torch.no_grad():
            for steps in self._steps:
                steps.add_(1)
            self._kernel(
                *self._lists,
                [],
                self._steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def set_lr(self, lr: float) -> None:
        """Change the learning rate."""
        group = self._adam.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr

    def restart(self) -> None:
        """Reset the moments."""
        for tensor in self.tensors():
            tensor.zero_()

    def tensors(self) -> list[Tensor]:
        """The moments and the count of steps of every parameter."""
        return [value for parameter in self.parameters for value in self._adam.state[parameter].values()]

    def state_dict(self) -> dict[str, Any]:
        """Copy of the moments and the learning rate."""
        return copy.deepcopy(self._adam.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`. One of before the first step may hold no moments."""
        self.set_lr(float(state["param_groups"][0]["lr"]))
        for index, parameter in enumerate(self.parameters):
            saved = state["state"].get(index, {})
            for name, value in self._adam.state[parameter].items():
                value.copy_(saved[name]) if saved else value.zero_()
