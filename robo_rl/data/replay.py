"""Replay buffer with one ring per lane, so that returns never cross an episode or a lane.

Transitions are stored one decision at a time. n-step returns are computed at sampling time, from the sampled
decision onwards. This costs one gather per step, but a decision can be sampled as soon as it is stored, and
lanes may advance at different times (as decisions of chunks do).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.shapes import Float, Int


@dataclass(frozen=True, slots=True)
class Batch:
    """Sample of a replay. b = batch, f = features, c = context, k = critic's action input, a = executed
    action (or chunk, flattened).

    `critic_action` is the actor's output after the action map; `action` is what the robot executed. They are
    equal for direct and residual control and differ for steering.
    """

    obs: Float[Tensor, "b f"]
    ctx: Float[Tensor, "b c"]
    critic_action: Float[Tensor, "b k"]
    action: Float[Tensor, "b a"]
    reward: Float[Tensor, " b"]  # n-step sum of discounted rewards
    discount: Float[Tensor, " b"]  # gamma^steps; 0: no bootstrapping
    next_obs: Float[Tensor, "b f"]  # last observation of the episode, never the one after a reset
    next_ctx: Float[Tensor, "b c"]
    mc_return: Float[
        Tensor, " b"
    ]  # discounted return to the end of the episode, also to a time-out; NaN: unknown
    # mc_return, if the episode had no reward left after its end; NaN: unknown
    return_floor: Float[Tensor, " b"]
    demo: Float[Tensor, " b"]  # 1 for actions of a demonstrator or an intervention


class Replay:
    """Ring buffers of decisions, one per lane. widths: name -> width.

    Rewards are stored per decision, discounted inside a chunk of `steps` steps. extra: columns that are
    stored but not sampled, such as terms of the reward.
    """

    VECTORS = ("obs", "ctx", "critic_action", "action", "next_obs", "next_ctx")
    SCALARS = ("reward", "steps", "mc_return", "demo")
    FLAGS = (
        "terminated",
        "truncated",
        "cut",
    )  # cut: the lane's next entry is not the successor of this one; bootstrap here
    TIMED_OUT = "timed_out"  # flag: the episode ended by time-out, and later rewards are missing in mc_return

    def __init__(
        self, capacity: int, lanes: int, widths: Mapping[str, int], extra: Mapping[str, int] | None = None
    ) -> None:
        if capacity < lanes:
            raise ConfigError(
                f"A replay of {capacity} transitions is too small for {lanes} parallel environments. Raise "
                "method.replay_capacity, or lower num_envs."
            )
        self.lanes, self.slots = lanes, capacity // lanes
        self.data: dict[str, Tensor] = {
            name: torch.zeros(lanes, self.slots, widths[name]) for name in self.VECTORS
        }
        self.data |= {name: torch.zeros(lanes, self.slots) for name in self.SCALARS}
        self.data |= {
            name: torch.zeros(lanes, self.slots, dtype=torch.bool) for name in (*self.FLAGS, self.TIMED_OUT)
        }
        self._extra = dict(extra or {})
        self.data |= {name: torch.zeros(lanes, self.slots, width) for name, width in self._extra.items()}
        self.head = torch.zeros(lanes, dtype=torch.long)  # number of decisions ever stored, per lane
        self.episode_start = torch.zeros(
            lanes, dtype=torch.long
        )  # value of `head` at the start of the running episode

    def __len__(self) -> int:
        return int(self.head.clamp(max=self.slots).sum())

    def add(self, lane_ids: Int[Tensor, " k"], values: Mapping[str, Tensor], gamma: float) -> None:
        """Store one decision of each of these lanes. At the end of an episode, compute its Monte-Carlo
        returns.

        values: every vector, `reward`, `steps`, `demo` and all flags, with k rows; other entries are ignored.
        """
        slot = self.head[lane_ids] % self.slots
        for name in (*self.VECTORS, "reward", "steps", "demo", *self.FLAGS, *self._extra):
            self.data[name][lane_ids, slot] = values[name].to(self.data[name].dtype)
        self.data["mc_return"][lane_ids, slot], self.data[self.TIMED_OUT][lane_ids, slot] = torch.nan, False
        self.head[lane_ids] += 1
        for lane in lane_ids[values["terminated"] | values["truncated"]].tolist():
            self._close_episode(lane, gamma)

    def set_last_reward(self, lane_ids: Int[Tensor, " k"], reward: float) -> None:
        """Overwrite the reward of the newest decision of these lanes (RLIF's -1 just before an
        intervention).
        """
        self.data["reward"][lane_ids, (self.head[lane_ids] - 1) % self.slots] = reward

    def _close_episode(self, lane: int, gamma: float) -> None:
        end = int(self.head[lane])
        start = max(int(self.episode_start[lane]), end - self.slots)
        slots = torch.arange(start, end) % self.slots
        rewards = self.data["reward"][lane, slots].tolist()
        steps = self.data["steps"][lane, slots].tolist()
        cuts = self.data["cut"][lane, slots].tolist()
        cuts[-1] = False  # the end has no successor
        total, returns = 0.0, []
        for reward, duration, cut in zip(reversed(rewards), reversed(steps), reversed(cuts), strict=True):
            # What follows a cut is stored elsewhere.
            total = math.nan if cut else reward + gamma**duration * total
            returns.append(total)
        self.data["mc_return"][lane, slots] = torch.tensor(returns[::-1])
        self.data[self.TIMED_OUT][lane, slots] = ~self.data["terminated"][lane, slots[-1]]
        self.episode_start[lane] = end

    def sample(
        self,
        size: int,
        generator: torch.Generator,
        *,
        gamma: float,
        n_step: int = 1,
        timeout_is_failure: bool = False,
    ) -> Batch:
        """Uniform sample of stored decisions, with n-step returns that stop at the end of an episode.

        A termination is never bootstrapped. A time-out is bootstrapped from its last observation, unless
        `timeout_is_failure` declares a finite horizon. Only then is the return to a time-out complete, and
        thus a floor.
        """
        filled = self.head.clamp(max=self.slots)
        ends = filled.cumsum(0)
        flat = torch.randint(int(ends[-1]), (size,), generator=generator)
        lane = torch.searchsorted(ends, flat, right=True)
        oldest = self.head[lane] - filled[lane]
        first = oldest + flat - (ends[lane] - filled[lane])  # index of the decision inside the lane
        reward, discount, last = self._n_step(lane, first, gamma, n_step)
        at, to = self._rows(lane, first), self._rows(lane, last)
        stop = self._column("terminated")[to]
        mc_return = floor = self._column("mc_return")[at]
        if timeout_is_failure:
            stop = stop | self._column("truncated")[to]
        else:
            floor = floor.masked_fill(self._column(self.TIMED_OUT)[at], torch.nan)
        return Batch(
            obs=self._column("obs")[at],
            ctx=self._column("ctx")[at],
            critic_action=self._column("critic_action")[at],
            action=self._column("action")[at],
            reward=reward,
            discount=discount * (~stop).float(),
            next_obs=self._column("next_obs")[to],
            next_ctx=self._column("next_ctx")[to],
            mc_return=mc_return,
            return_floor=floor,
            demo=self._column("demo")[at],
        )

    def _rows(self, lane: Int[Tensor, "..."], index: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Row of decision `index` of a lane in a `_column`."""
        return lane * self.slots + index % self.slots

    def _column(self, name: str) -> Tensor:
        """A field with lanes and slots as one axis: gathering by one index costs half as much as by two."""
        return self.data[name].flatten(0, 1)

    def _n_step(
        self, lane: Int[Tensor, " b"], first: Int[Tensor, " b"], gamma: float, n_step: int
    ) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"], Int[Tensor, " b"]]:
        """Sum of rewards, product of discounts and the last decision used, per sampled decision."""
        if n_step == 1:
            rows = self._rows(lane, first)
            return self._column("reward")[rows], gamma ** self._column("steps")[rows], first
        index = first.unsqueeze(1) + torch.arange(n_step)  # (b, n)
        rows = self._rows(lane.unsqueeze(1), index)
        ends = self._column("terminated")[rows] | self._column("truncated")[rows] | self._column("cut")[rows]
        follows = (index[:, 1:] < self.head[lane].unsqueeze(1)) & ~ends[:, :-1]
        used = torch.cat([torch.ones(len(first), 1), follows.float()], dim=1).cumprod(dim=1)  # (b, n), 1 or 0
        steps = used * self._column("steps")[rows]
        before = steps.cumsum(dim=1) - steps  # environment steps before each decision
        reward = (used * gamma**before * self._column("reward")[rows]).sum(dim=1)
        return reward, gamma ** steps.sum(dim=1), first + used.sum(dim=1).long() - 1

    def state_dict(self) -> dict[str, Tensor]:
        """The filled part only, so that early checkpoints are small."""
        used = int(self.head.max().clamp(max=self.slots))
        state = {name: value[:, :used].clone() for name, value in self.data.items()}
        return state | {"head": self.head.clone(), "episode_start": self.episode_start.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state. Raises CheckpointError if it has other lanes, slots or widths."""
        used = int(state["head"].max().clamp(max=self.slots))
        # Older checkpoints lack this flag: how their episodes ended is unknown.
        state = {self.TIMED_OUT: torch.ones_like(state["terminated"])} | dict(state)
        for name, value in self.data.items():
            if state[name].shape != (expected := value[:, :used].shape):
                raise CheckpointError(
                    f"The replay of this checkpoint has {name} of shape {tuple(state[name].shape)}, expected "
                    f"{tuple(expected)}. Resume with the settings and the base that the run was started with."
                )
        self.head, self.episode_start = state["head"].clone(), state["episode_start"].clone()
        for name, value in self.data.items():
            value.zero_()
            value[:, : state[name].shape[1]] = state[name]
