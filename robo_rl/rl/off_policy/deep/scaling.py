"""Running scales of what is stored in the replay: mean and deviation of observations, size of returns.

Both are of all decisions so far, not of those that the replay still holds. Batches are scaled when they are
drawn, so the replay keeps what was measured (SimbaV2, Lee et al. 2025, 2502.15280; XQC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.core.shapes import Bool, Float
from robo_rl.data.replay import Batch
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.networks import Networks

EPS = 1e-8  # added to variances
FIRST_COUNT = 1e-4  # weight of the first statistics, mean 0 and variance 1


class Moments:
    """Running mean and variance of vectors, in float64."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.mean = torch.zeros(width, dtype=torch.float64, device=device)
        self.variance = torch.ones(width, dtype=torch.float64, device=device)
        self.count = torch.full((), FIRST_COUNT, dtype=torch.float64, device=device)

    def add(self, rows: Float[Tensor, "k w"], among: Bool[Tensor, " k"]) -> None:
        """Include those of these rows at which `among` is true."""
        weight = among.double().unsqueeze(1)
        rows = torch.where(among.unsqueeze(1), rows.double(), 0.0)
        new = weight.sum()
        divisor = new.clamp_min(1e-12)
        mean = (weight * rows).sum(0) / divisor
        variance = (weight * (rows - mean).square()).sum(0) / divisor
        total, apart = self.count + new, mean - self.mean
        share = new / total
        self.variance.mul_(1.0 - share).add_(share * variance + (1.0 - share) * share * apart.square())
        self.mean.add_(share * apart)
        self.count.copy_(total)

    @property
    def deviation(self) -> Float[Tensor, " w"]:
        """Standard deviation."""
        return (self.variance + EPS).sqrt()

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean.clone(), "variance": self.variance.clone(), "count": self.count.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name in ("mean", "variance", "count"):
            getattr(self, name).copy_(state[name])


class RunningScales:
    """Statistics for `normalize_obs` and `reward_scaling`. `add` receives every decision once, in order.

    The scale of rewards is the deviation of running discounted returns G <- gamma^steps * G + r of the lanes,
    or the largest |G| divided by `v_max` if that is more (reward_scaling=bounded).
    """

    def __init__(self, obs_dim: int, nets: Networks, context: LearnerContext) -> None:
        self.context, self.nets = context, nets
        self.obs = Moments(obs_dim, context.device)
        self.returns = Moments(1, context.device)
        self.largest = torch.zeros((), dtype=torch.float64, device=context.device)
        self.running = torch.zeros(0, dtype=torch.float64, device=context.device)  # G of every lane

    def add(self, num_lanes: int, lanes: Lanes, values: Mapping[str, Tensor]) -> None:
        """Include one decision of each of these lanes, out of `num_lanes`. values: entries of the replay."""
        cfg = self.context.cfg
        among = torch.ones_like(lanes.ids, dtype=torch.bool) if lanes.mask is None else lanes.mask
        if cfg.normalize_obs:
            self.obs.add(values["obs"], among)
            self.publish()
        if cfg.reward_scaling != "none":
            if len(self.running) != num_lanes:
                self.running = self.running.new_zeros(num_lanes)
            ended = values["terminated"] | values["truncated"]
            kept = (cfg.gamma ** values["steps"].double()) * ~ended
            total = kept * lanes.read(self.running) + values["reward"].double()
            total = torch.where(among, total, 0.0)
            lanes.write(self.running, total)
            self.returns.add(total.unsqueeze(1), among)
            self.largest.copy_(torch.maximum(self.largest, total.abs().amax()))

    def publish(self) -> None:
        """Write the statistics of observations into actor, critics and target networks."""
        views, deviation = self.context.views, self.obs.deviation
        for net, view in (
            (self.nets.actor, views.actor),
            (self.nets.target_actor, views.actor),
            (self.nets.critic, views.critic),
            (self.nets.target, views.critic),
        ):
            if net.input_norm is not None:
                net.input_norm.set(self.obs.mean[view], deviation[view])

    @property
    def reward_scale(self) -> Tensor:
        """Number by which rewards are divided."""
        cfg = self.context.cfg
        deviation = self.returns.deviation[0]
        if cfg.reward_scaling == "bounded":
            deviation = torch.maximum(deviation, self.largest / cfg.v_max)
        return deviation.float()

    def scaled(self, batch: Batch) -> Batch:
        """The batch with scaled rewards and returns."""
        if self.context.cfg.reward_scaling == "none":
            return batch
        scale = self.reward_scale
        return replace(
            batch,
            reward=batch.reward / scale,
            mc_return=batch.mc_return / scale,
            return_floor=batch.return_floor / scale,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """All statistics, copied."""
        return {
            **{f"obs_{name}": value for name, value in self.obs.state_dict().items()},
            **{f"returns_{name}": value for name, value in self.returns.state_dict().items()},
            "largest": self.largest.clone(),
            "running": self.running.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a `state_dict`."""
        for prefix, moments in (("obs_", self.obs), ("returns_", self.returns)):
            moments.load_state_dict(
                {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            )
        self.largest.copy_(state["largest"])
        self.running = state["running"].to(self.largest)
