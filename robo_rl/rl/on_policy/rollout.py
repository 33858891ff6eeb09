"""Storage of one rollout for PPO: decisions per lane, as the collector stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.core.shapes import Bool, Float
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.on_policy.groups import GroupConfig, group_advantage
from robo_rl.rl.on_policy.ppo import RewardScale, gae

Value = Callable[[Tensor, Tensor], Tensor]  # (obs, ctx) -> V


@dataclass(frozen=True, slots=True)
class RolloutTransitions:
    """b decisions of the current policy, with advantages and returns."""

    obs: Float[Tensor, "b f"]
    ctx: Float[Tensor, "b c"]
    u: Float[Tensor, "b d"]  # output of the actor
    advantage: Float[Tensor, " b"]
    returns: Float[Tensor, " b"] | None  # regression targets of the critic; None: advantages of groups


def vars_of(data: RolloutTransitions) -> dict[str, Tensor | None]:
    """Columns by name."""
    return {name: getattr(data, name) for name in RolloutTransitions.__slots__}


def joined_rounds(rounds: list[RolloutTransitions]) -> RolloutTransitions:
    """Decisions of all rounds, in order; with returns if the rounds have them."""
    columns = [vars_of(data) for data in rounds]
    joined: dict[str, Any] = {}
    for name in columns[0]:
        values = [column[name] for column in columns]
        joined[name] = None if values[0] is None else torch.cat([each for each in values if each is not None])
    return RolloutTransitions(**joined)


class Rollout:
    """Store of the collector in place of a replay buffer. Lanes may hold different numbers of decisions.

    A decision that runs while the weights change is dropped when it ends: it was made by the previous policy,
    for which the probability ratio of the first minibatch is not 1.

    grouped: keep the outcome of episodes, and keep decisions until the group of their episode is complete;
    none is dropped then, see `take_groups`.
    """

    FIELDS = ("obs", "ctx", "u", "next_obs", "next_ctx")
    OUTCOME = ("episode_seed", "success", "carried")  # of the last decision of an episode; zeros before

    def __init__(
        self,
        lanes: int,
        slots: int,
        widths: Mapping[str, int],
        device: torch.device | str = "cpu",
        *,
        grouped: bool = False,
    ) -> None:
        shape = (lanes, slots)
        self.data = {name: torch.zeros(*shape, widths[name], device=device) for name in self.FIELDS}
        self.data |= {name: torch.zeros(shape, device=device) for name in ("reward", "discount")}
        self.data |= {
            name: torch.zeros(shape, dtype=torch.bool, device=device) for name in ("terminated", "truncated")
        }
        self.grouped = grouped
        if grouped:
            types = (torch.long, torch.bool, torch.bool)
            self.data |= {
                name: torch.zeros(shape, dtype=dtype, device=device)
                for name, dtype in zip(self.OUTCOME, types, strict=True)
            }
        self.count = torch.zeros(lanes, dtype=torch.long, device=device)
        # the running decision was made by the previous policy
        self.stale = torch.zeros(lanes, dtype=torch.bool, device=device)
        # a dropped decision ended the episode, so the first stored one begins another
        self.restarted = torch.zeros(lanes, dtype=torch.bool, device=device)

    def add(self, lanes: Lanes, values: Mapping[str, Tensor], gamma: float) -> None:
        """Store one decision of each of these lanes."""
        fresh, ended = ~lanes.read(self.stale), values["terminated"] | values["truncated"]
        lanes.write(self.stale, False)
        lanes.write(self.restarted, lanes.read(self.restarted) | (~fresh & ended))
        kept = lanes.where(fresh)
        rows = {name: lanes.rows(value, fresh) for name, value in values.items()}
        rows["discount"] = gamma ** rows["steps"].float()
        # A full lane is never stored to; in the masked form it may stand among the rows.
        slot = kept.read(self.count).clamp(max=self.data["reward"].shape[1] - 1)
        for name, data in self.data.items():
            running = name in self.OUTCOME and name not in rows
            kept.put(data, slot, data.new_zeros(len(slot)) if running else rows[name])
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
            reward = scale(reward, data["discount"], ended, valid, self.restarted)
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

    def take_groups(self, config: GroupConfig) -> tuple[RolloutTransitions, Info]:
        """Decisions of complete groups, with the advantage of their episode, and logs.

        They leave the store. Episodes of incomplete groups stay for one more round: their decisions are then
        of the previous policy. No critic is asked.
        """
        used = int(self.count.max())
        data = {name: column[:, :used] for name, column in self.data.items()}
        valid = torch.arange(used, device=self.count.device) < self.count.unsqueeze(1)
        ends = valid & (data["terminated"] | data["truncated"])
        in_lane = ends.cumsum(1) - ends.long()  # position of a decision's episode in its lane
        per_lane = ends.sum(1)
        finished = valid & (in_lane < per_lane.unsqueeze(1))
        episode = (in_lane + (per_lane.cumsum(0) - per_lane).unsqueeze(1))[finished]
        sums = data["reward"].new_zeros(int(per_lane.sum()))
        total = sums.index_add(0, episode, data["reward"][finished])
        older = sums.index_add(0, episode, data["carried"][finished].to(sums.dtype)) > 0.0
        advantage, complete, learned = group_advantage(
            data["episode_seed"][ends], total, data["success"][ends], config
        )
        rows = finished.clone()
        rows[finished] = learned[episode]
        of_episode = episode[learned[episode]]
        if config.by_length:
            length = torch.bincount(of_episode, minlength=len(advantage)).clamp(min=1).to(advantage)
            advantage = advantage * length[learned].mean() / length
        taken = RolloutTransitions(
            data["obs"][rows], data["ctx"][rows], data["u"][rows], advantage[of_episode], None
        )
        kept = valid.clone()
        kept[finished] = ~(complete | older)[episode]
        self._keep(kept)
        info = {"complete": complete.sum(), "learned": learned.sum()}
        return taken, {f"train/groups_{key}": value / config.size for key, value in info.items()}

    def _keep(self, kept: Bool[Tensor, "n t"]) -> None:
        """Move these decisions to the front of their lanes, and forget the others."""
        used = kept.shape[1]
        order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)
        lane = torch.arange(len(kept), device=kept.device).unsqueeze(1)
        for column in self.data.values():
            column[:, :used] = column[lane, order]
        self.data["carried"][:] = True  # of what stays; a new decision is written over it
        self.count = kept.sum(1)

    def clear(self, running: Bool[Tensor, " n"]) -> None:
        """Start the next rollout. running: mask of lanes with an unfinished decision."""
        self.count.zero_()
        self.stale = running.clone()
        self.restarted.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        used = int(self.count.max())
        state = {name: value[:, :used].clone() for name, value in self.data.items()}
        names = ("count", "stale", "restarted")
        return state | {name: getattr(self, name).clone() for name in names}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.count.copy_(state["count"])
        self.stale.copy_(state["stale"])
        self.restarted.copy_(state.get("restarted", torch.zeros_like(self.stale)))  # older ones have none
        for name, value in self.data.items():
            value[:, : state[name].shape[1]] = state[name]


def _last(valid: Bool[Tensor, "n t"]) -> Bool[Tensor, "n t"]:
    """The last valid entry of each lane."""
    following = torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], dim=1)
    return valid & ~following
