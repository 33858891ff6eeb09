"""Storage of one rollout for PPO: decisions per lane, as the collector stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.core.shapes import Bool, Float
from robo_rl.rl.on_policy.ppo import RewardScale, gae

Value = Callable[[Tensor, Tensor], Tensor]  # (obs, ctx) -> V


@dataclass(frozen=True, slots=True)
class RolloutTransitions:
    """b decisions of the current policy, with advantages and returns."""

    obs: Float[Tensor, "b f"]
    ctx: Float[Tensor, "b c"]
    u: Float[Tensor, "b d"]  # output of the actor
    advantage: Float[Tensor, " b"]
    returns: Float[Tensor, " b"]  # regression targets of the critic


class Rollout:
    """Store of the collector in place of a replay buffer. Lanes may hold different numbers of decisions.

    A decision that runs while the weights change is dropped when it ends: it was made by the previous policy,
    for which the probability ratio of the first minibatch is not 1.
    """

    FIELDS = ("obs", "ctx", "u", "next_obs", "next_ctx")

    def __init__(
        self, lanes: int, slots: int, widths: Mapping[str, int], device: torch.device | str = "cpu"
    ) -> None:
        shape = (lanes, slots)
        self.data = {name: torch.zeros(*shape, widths[name], device=device) for name in self.FIELDS}
        self.data |= {name: torch.zeros(shape, device=device) for name in ("reward", "discount")}
        self.data |= {
            name: torch.zeros(shape, dtype=torch.bool, device=device) for name in ("terminated", "truncated")
        }
        self.count = torch.zeros(lanes, dtype=torch.long, device=device)
        # the running decision was made by the previous policy
        self.stale = torch.zeros(lanes, dtype=torch.bool, device=device)

    def add(self, lanes: Lanes, values: Mapping[str, Tensor], gamma: float) -> None:
        """Store one decision of each of these lanes."""
        fresh = ~lanes.read(self.stale)
        lanes.write(self.stale, False)
        kept = lanes.where(fresh)
        rows = {name: lanes.rows(value, fresh) for name, value in values.items()}
        rows["discount"] = gamma ** rows["steps"].float()
        # A full lane is never stored to; in the masked form it may stand among the rows.
        slot = kept.read(self.count).clamp(max=self.data["reward"].shape[1] - 1)
        for name, data in self.data.items():
            kept.put(data, slot, rows[name])
        kept.add(self.count, 1)

    def set_last_reward(self, lanes: Lanes, reward: float) -> None:
        """Overwrite the reward of the newest stored decision of these lanes. Lanes without one are
        skipped.
        """
        stored = lanes.where(lanes.read(self.count) > 0)
        slot = (stored.read(self.count) - 1).clamp(min=0)
        stored.put(self.data["reward"], slot, torch.full_like(slot, reward, dtype=torch.float32))

    def transitions(
        self, value: Value, lam: float, scale: RewardScale | None, *, timeout_is_failure: bool = False
    ) -> RolloutTransitions:
        """All decisions with their advantages and returns, lane after lane."""
        used = int(self.count.max())
        data = {name: column[:, :used] for name, column in self.data.items()}
        valid = torch.arange(used, device=self.count.device) < self.count.unsqueeze(1)
        ended = data["terminated"] | data["truncated"]
        reward = data["reward"]
        if scale is not None:
            reward = scale(reward, data["discount"], ended, valid)
        now, then = value(data["obs"], data["ctx"]), value(data["next_obs"], data["next_ctx"])
        ended = ended | _last(valid)  # V(s') replaces the return after the rollout
        terminated = data["terminated"] | data["truncated"] if timeout_is_failure else data["terminated"]
        advantage = gae(reward, data["discount"], now, then, terminated, ended, lam)
        return RolloutTransitions(
            data["obs"][valid],
            data["ctx"][valid],
            data["u"][valid],
            advantage[valid],
            (advantage + now)[valid],
        )

    def clear(self, running: Bool[Tensor, " n"]) -> None:
        """Start the next rollout. running: mask of lanes with an unfinished decision."""
        self.count.zero_()
        self.stale = running.clone()

    def state_dict(self) -> dict[str, Tensor]:
        used = int(self.count.max())
        state = {name: value[:, :used].clone() for name, value in self.data.items()}
        return state | {"count": self.count.clone(), "stale": self.stale.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.count.copy_(state["count"])
        self.stale.copy_(state["stale"])
        for name, value in self.data.items():
            value[:, : state[name].shape[1]] = state[name]


def _last(valid: Bool[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
    """The last valid entry of each lane."""
    following = torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], dim=1)
    return valid & ~following
