"""What PPO learns from: the decisions of one roll-out, lane by lane, as the collector hands them over."""

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
    """b decisions of the policy that is about to be improved."""

    obs: Float[Tensor, "b f"]
    ctx: Float[Tensor, "b c"]
    u: Float[Tensor, "b d"]  # what the actor put out
    advantage: Float[Tensor, " b"]
    returns: Float[Tensor, " b"]  # what the critic is regressed to


class Rollout:
    """Takes the place of a replay in the collector. Rows fill from the left; lanes may have made fewer
    decisions.

    A decision that was running when the weights changed is left out when it ends: it belongs to the older
    policy, and with it the probability ratio of the first minibatch would not be 1.
    """

    FIELDS = ("obs", "ctx", "u", "next_obs", "next_ctx")

    def __init__(self, lanes: int, slots: int, widths: Mapping[str, int]) -> None:
        self.data = {name: torch.zeros(lanes, slots, widths[name]) for name in self.FIELDS}
        self.data |= {name: torch.zeros(lanes, slots) for name in ("reward", "discount")}
        self.data |= {
            name: torch.zeros(lanes, slots, dtype=torch.bool) for name in ("terminated", "truncated")
        }
        self.count = torch.zeros(lanes, dtype=torch.long)
        self.stale = torch.zeros(lanes, dtype=torch.bool)  # the running decision is the older policy's

    def add(self, rows: Int[Tensor, " k"], values: Mapping[str, Tensor], gamma: float) -> None:
        """Store one decision in each of these lanes."""
        fresh = ~self.stale[rows]
        self.stale[rows] = False
        rows, values = rows[fresh], {name: value[fresh] for name, value in values.items()}
        values["discount"] = gamma ** values["steps"].float()
        for name, data in self.data.items():
            data[rows, self.count[rows]] = values[name]
        self.count[rows] += 1

    def set_last_reward(self, rows: Int[Tensor, " k"], reward: float) -> None:
        """Overwrite the reward of the newest decision of these lanes; one that has been learned from is past
        help.
        """
        rows = rows[self.count[rows] > 0]
        self.data["reward"][rows, self.count[rows] - 1] = reward

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
        ended = ended | _last(valid)  # what lies behind it is not part of this roll-out: V(s') stands for it
        advantage = gae(reward, data["discount"], now, then, data["terminated"], ended, lam)
        return RolloutTransitions(
            data["obs"][valid],
            data["ctx"][valid],
            data["u"][valid],
            advantage[valid],
            (advantage + now)[valid],
        )

    def clear(self, running: Bool[Tensor, " n"]) -> None:
        """Start the next roll-out; `running`: lanes with a decision under way."""
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
