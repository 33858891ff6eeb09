"""Storage of one rollout for PPO: decisions per lane, as the collector stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int
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

    def __init__(self, lanes: int, slots: int, widths: Mapping[str, int]) -> None:
        self.data = {name: torch.zeros(lanes, slots, widths[name]) for name in self.FIELDS}
        self.data |= {name: torch.zeros(lanes, slots) for name in ("reward", "discount")}
        self.data |= {
            name: torch.zeros(lanes, slots, dtype=torch.bool) for name in ("terminated", "truncated")
        }
        self.count = torch.zeros(lanes, dtype=torch.long)
        # the running decision was made by the previous policy
        self.stale = torch.zeros(lanes, dtype=torch.bool)

    def add(self, lane_ids: Int[Tensor, " k"], values: Mapping[str, Tensor], gamma: float) -> None:
        """Store one decision of each of these lanes."""
        fresh = ~self.stale[lane_ids]
        self.stale[lane_ids] = False
        lane_ids, values = lane_ids[fresh], {name: value[fresh] for name, value in values.items()}
        values["discount"] = gamma ** values["steps"].float()
        for name, data in self.data.items():
            data[lane_ids, self.count[lane_ids]] = values[name]
        self.count[lane_ids] += 1

    def set_last_reward(self, lane_ids: Int[Tensor, " k"], reward: float) -> None:
        """Overwrite the reward of the newest stored decision of these lanes. Lanes without one are
        skipped.
        """
        lane_ids = lane_ids[self.count[lane_ids] > 0]
        self.data["reward"][lane_ids, self.count[lane_ids] - 1] = reward

    def transitions(self, value: Value, lam: float, scale: RewardScale | None) -> RolloutTransitions:
        """All decisions with their advantages and returns, lane after lane."""
        used = int(self.count.max())
        data = {name: column[:, :used] for name, column in self.data.items()}
        valid = torch.arange(used) < self.count.unsqueeze(1)
        ended = data["terminated"] | data["truncated"]
        reward = data["reward"]
        if scale is not None:
            reward = scale(reward, data["discount"], ended, valid)
        now, then = value(data["obs"], data["ctx"]), value(data["next_obs"], data["next_ctx"])
        ended = ended | _last(valid)  # V(s') replaces the return after the rollout
        advantage = gae(reward, data["discount"], now, then, data["terminated"], ended, lam)
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
        self.count, self.stale = state["count"].clone(), state["stale"].clone()
        for name, value in self.data.items():
            value[:, : state[name].shape[1]] = state[name]


def _last(valid: Bool[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
    """The last valid entry of each lane."""
    following = torch.cat([valid[:, 1:], torch.zeros(len(valid), 1, dtype=torch.bool)], dim=1)
    return valid & ~following
