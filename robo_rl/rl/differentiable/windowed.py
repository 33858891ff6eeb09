"""First-order policy optimisation on a device: an update reads nothing from it, and is one CUDA graph.

The gradient is that of first_order.py, found in another order. A window is flown forward; then it is walked
back step by step for the gradients of the actions, which needs the gradients of simulator and policy with
respect to their inputs only; then the policy's weights get theirs from all steps at once, in one large batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.settings import check_settings
from robo_rl.nets.optim.graphs import WARM_UP, GraphCache
from robo_rl.rl.differentiable.first_order import ColumnPolicy, FirstOrderConfig

CHECK_EVERY = 50  # updates between two looks at whether all gradients were finite


@runtime_checkable
class WindowEnv(Protocol):
    """Lanes that step together on a device, and back again. Tensors are (feature, lane)."""

    num: int
    obs: Tensor  # (o, n), the current observation

    def restart(self) -> None: ...

    def prepare(self) -> None: ...

    def begin(self) -> None: ...

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """action (a, n) -> (cost (n,), 1.0 where the lane has ended (n,))."""
        ...

    def step_back(self, d_cost: Tensor, d_obs: Tensor | None = None) -> Tensor:
        """Gradients with respect to the results of the last step -> with respect to its action."""
        ...

    def settle(self) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class WindowedFirstOrder:
    """Optimiser and update count of a first-order run on the policy's device.

    graphs: where updates are captured. A gradient that is not finite raises RoboRLError at the next look, at
    most `CHECK_EVERY` updates later.
    """

    def __init__(
        self, policy: nn.Module, env: WindowEnv, config: FirstOrderConfig, graphs: GraphCache | None = None
    ) -> None:
        check_settings(config)
        if config.value:
            raise ConfigError("A learned cost-to-go (value=true, method=shac) needs device=cpu.")
        self.policy, self.env, self.config, self.updates = policy, env, config, 0
        self.graphs = graphs or GraphCache()
        weights = list(policy.parameters())
        device = weights[0].device
        self._lr = torch.tensor(config.lr, device=device)
        self.optimizer = torch.optim.Adam(weights, lr=self._lr, fused=True, capturable=device.type == "cuda")
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr  # this tensor, which is filled before every update
        self._wrong = torch.zeros((), dtype=torch.bool, device=device)
        self._share = torch.full((env.num,), 1.0 / (env.num * config.horizon), device=device)
        env.restart()

    @property
    def done(self) -> bool:
        return self.updates >= self.config.updates

    @property
    def env_steps(self) -> int:
        return self.updates * self.config.horizon * self.env.num

    def update(self) -> dict[str, Tensor]:
        """Logs of one window and one step of the optimiser: cost per step, ended episodes, gradient norm.

        They are overwritten by the next update.
        """
        cfg = self.config
        self.env.prepare()
        self._lr.fill_(cfg.lr * (1.0 - self.updates / cfg.updates) + cfg.final_lr)
        logs = self.graphs.run("update", self._update)
        self.updates += 1
        if self.done or self.updates % CHECK_EVERY == 0:
            self._check()
        return logs

    def build(self) -> None:
        """Build and capture all that an update needs. What is learned afterwards is the same as without this
        call.
        """
        before = copy.deepcopy(self.state_dict())
        for _ in range(WARM_UP + 1):
            self.update()
        self.load_state_dict(before)

    def _update(self) -> dict[str, Tensor]:
        """The part that runs on the device alone."""
        self.policy.requires_grad_(False)
        obs, d_actions, logs = self._window()
        self.policy.requires_grad_(True)
        weights = list(self.policy.parameters())
        act = cast("ColumnPolicy", self.policy).columns
        for weight, grad in zip(weights, torch.autograd.grad(act(obs), weights, d_actions), strict=True):
            weight.grad = grad.contiguous()  # fused Adam needs the strides of the weight
        norm = nn.utils.clip_grad_norm_(weights, self.config.grad_clip or math.inf)
        self._wrong.logical_or_(torch.isfinite(norm).logical_not())
        self.optimizer.step()
        return logs | {"train/grad_norm": norm}

    def _window(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Observations of all steps side by side, gradients with respect to their actions, and logs."""
        env, act = self.env, cast("ColumnPolicy", self.policy).columns
        env.begin()
        seen, actions, costs, ended = [], [], [], []
        for _ in range(self.config.horizon):
            seen.append(env.obs.detach().requires_grad_())
            actions.append(act(seen[-1]))
            cost, over = env.step(actions[-1].detach())
            costs.append(cost)
            ended.append(over)
        d_actions = [env.step_back(self._share)]
        for obs, action in zip(seen[:0:-1], actions[:0:-1], strict=True):
            (d_obs,) = torch.autograd.grad(action, obs, d_actions[-1])
            d_actions.append(env.step_back(self._share, d_obs))
        logs = {"train/cost": torch.stack(costs).mean(), "train/ended": torch.stack(ended).sum()}
        together = torch.cat(seen, dim=1).detach()  # a copy: `settle` overwrites the first observation
        env.settle()
        return together, torch.cat(d_actions[::-1], dim=1), logs

    def _check(self) -> None:
        if bool(self._wrong):
            raise RoboRLError(
                f"The gradient of one of the {CHECK_EVERY} updates before number {self.updates} was not "
                "finite. Lower lr, or shorten horizon: the gradient through many steps of a tumbling "
                "aircraft can explode."
            )

    def state_dict(self) -> dict[str, Any]:
        self._check()
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "env": self.env.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Tensors stay where they are, so that captured updates remain valid."""
        self.policy.load_state_dict(state["policy"])
        self._load_moments(state["optimizer"])
        self.env.load_state_dict(state["env"])
        self.updates = int(state["updates"])

    def _load_moments(self, saved: Mapping[str, Any]) -> None:
        held = self.optimizer.state
        if not held:  # before the first update
            self.optimizer.load_state_dict(dict(saved))
            for group in self.optimizer.param_groups:
                group["lr"] = self._lr
        for place, weight in enumerate(self.policy.parameters()):
            for name, value in held[weight].items() if weight in held else ():
                value.copy_(
                    saved["state"][place][name] if place in saved["state"] else torch.zeros_like(value)
                )
