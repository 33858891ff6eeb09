"""Replay buffer with one ring per lane, so that returns never cross an episode or a lane.

Transitions are stored one decision at a time. n-step returns are computed at sampling time, from the sampled
decision onwards. This costs one gather per step, but a decision can be sampled as soon as it is stored, and
lanes may advance at different times (as decisions of chunks do).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, Float64, Int
from robo_rl.data.frames import FrameRing


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
    # With a replay of frames: camera -> (b, To, h, w, c) uint8. `obs` is then what is beside the pictures.
    pictures: Obs = field(default_factory=dict)
    next_pictures: Obs = field(default_factory=dict)


class Replay:
    """Ring buffers of decisions, one per lane. widths: name -> width.

    Rewards are stored per decision, discounted inside a chunk of `steps` steps. extra: columns that are
    stored but not sampled, such as terms of the reward. device: of all tensors. frames: the lanes' pictures,
    appended by the caller; a decision then holds the numbers of the frames at its start and at its end, and
    is sampled until one of its pictures is overwritten.
    """

    VECTORS = ("obs", "ctx", "critic_action", "action", "next_obs", "next_ctx")
    SCALARS = ("reward", "steps", "mc_return", "demo")
    FLAGS = (
        "terminated",
        "truncated",
        "cut",
    )  # cut: the lane's next entry is not the successor of this one; bootstrap here
    FRAMES = ("frame", "next_frame")  # numbers in `frames`
    TIMED_OUT = "timed_out"  # flag: the episode ended by time-out, and later rewards are missing in mc_return

    def __init__(
        self,
        capacity: int,
        lanes: int,
        widths: Mapping[str, int],
        extra: Mapping[str, int] | None = None,
        device: torch.device | str = "cpu",
        frames: FrameRing | None = None,
    ) -> None:
        if capacity < lanes:
            raise ConfigError(
                f"A replay of {capacity} transitions is too small for {lanes} parallel environments. Raise "
                "method.replay_capacity, or lower num_envs."
            )
        self.lanes, self.slots, self.frames = lanes, capacity // lanes, frames
        self._extra = dict(extra or {})
        wide = {name: widths[name] for name in self.VECTORS} | self._extra
        shape = (lanes, self.slots)
        self.data: dict[str, Tensor] = {
            name: torch.zeros(*shape, width, device=device) for name, width in wide.items()
        }
        self.data |= {name: torch.zeros(shape, device=device) for name in self.SCALARS}
        self.data |= {
            name: torch.zeros(shape, dtype=torch.bool, device=device)
            for name in (*self.FLAGS, self.TIMED_OUT)
        }
        numbers = () if frames is None else self.FRAMES
        self.data |= {name: torch.zeros(shape, dtype=torch.long, device=device) for name in numbers}
        given = (*self.VECTORS, "reward", "steps", "demo", *self.FLAGS, *numbers, *self._extra)
        self._given = given  # columns that `add` receives
        # Number of decisions ever stored, per lane, and its value at the start of the running episode.
        self.head = torch.zeros(lanes, dtype=torch.long, device=device)
        self.episode_start = torch.zeros_like(self.head)
        self._filled = False  # True once a decision is known to be stored

    def __len__(self) -> int:
        return int(self._held().sum())

    @property
    def empty(self) -> bool:
        """True if there is nothing to sample. Reads the device until there is something, and never again."""
        self._filled = self._filled or len(self) > 0
        return not self._filled

    def add(self, lanes: Lanes, values: Mapping[str, Tensor], gamma: float) -> None:
        """Store one decision of each of these lanes. At the end of an episode, compute its Monte-Carlo
        returns.

        values: every vector, `reward`, `steps`, `demo` and all flags, with k rows; other entries are ignored.
        """
        slot = lanes.read(self.head) % self.slots
        written = {name: values[name].to(self.data[name].dtype) for name in self._given}
        written["mc_return"] = torch.full_like(slot, torch.nan, dtype=torch.float32)
        written[self.TIMED_OUT] = torch.zeros_like(slot, dtype=torch.bool)
        together = self._together(lanes, slot)
        for name, rows in written.items():
            if together is None:
                lanes.put(self.data[name], slot, rows)
            else:
                self.data[name][:, together] = rows
        lanes.add(self.head, 1)
        if ended := lanes.where(values["terminated"] | values["truncated"]):
            self._close_episodes(ended, gamma)

    def set_last_reward(self, lanes: Lanes, reward: float) -> None:
        """Overwrite the reward of the newest decision of these lanes (RLIF's -1 just before an
        intervention).
        """
        slot = (lanes.read(self.head) - 1) % self.slots
        lanes.put(self.data["reward"], slot, torch.full_like(slot, reward, dtype=torch.float32))

    def cut_running(self, lanes: Lanes) -> None:
        """Mark that the running episodes of these lanes end unseen: what is added next does not follow.

        Their newest decisions are bootstrapped, and their returns stay unknown.
        """
        unfinished = lanes.where(lanes.read(self.head > self.episode_start))
        slot = (unfinished.read(self.head) - 1) % self.slots
        unfinished.put(self.data["cut"], slot, torch.ones_like(slot, dtype=torch.bool))
        unfinished.write(self.episode_start, unfinished.read(self.head))

    def _close_episodes(self, lanes: Lanes, gamma: float) -> None:
        """Compute the returns of the episodes that end with the newest decision of these lanes."""
        end = lanes.read(self.head)
        start = torch.maximum(lanes.read(self.episode_start), end - self.slots)
        if (block := self._block(lanes, start, end)) is not None:
            self._close_block(block, gamma)
        else:
            self._close_rows(lanes, start, end, gamma)
        lanes.write(self.episode_start, end)

    def _block(self, lanes: Lanes, start: Int[Tensor, " k"], end: Int[Tensor, " k"]) -> slice | None:
        """Slots of the episodes of all lanes, if they are the same in each and in one piece."""
        first, after = self._together(lanes, start), self._together(lanes, end)
        if first is None or after is None or (low := first % self.slots) + after - first > self.slots:
            return None
        return slice(low, low + after - first)

    def _together(self, lanes: Lanes, numbers: Int[Tensor, " k"]) -> int | None:
        """The number of each of these lanes, if they are all lanes in order, and it is the same in each.

        For lanes that are taken out only: values of all are then written as a slice, in half the time.
        """
        if lanes.masked or len(lanes) < self.lanes:
            return None
        if not torch.equal(lanes.ids, torch.arange(self.lanes, device=lanes.ids.device)):
            return None
        return int(numbers[0]) if bool((numbers == numbers[0]).all()) else None

    def _close_block(self, block: slice, gamma: float) -> None:
        """The episodes of all lanes, in the same slots of each."""
        reward, steps, cut, ended = (
            self.data[name][:, block] for name in ("reward", "steps", "cut", "terminated")
        )
        reward = reward.double()
        if bool(cut.any()):
            reward[:, :-1].masked_fill_(cut[:, :-1], torch.nan)  # the end has no successor
        self.data["mc_return"][:, block] = discounted_sums(reward.t(), steps.t(), gamma, parallel=False).t()
        self.data[self.TIMED_OUT][:, block] = ~ended[:, -1:]

    def _close_rows(
        self, lanes: Lanes, start: Int[Tensor, " k"], end: Int[Tensor, " k"], gamma: float
    ) -> None:
        """Episodes of any lanes and lengths, row by row."""
        longest = self.slots if lanes.masked else int((end - start).max())
        at = self._newest(lanes, longest)
        inside = torch.arange(longest, 0, -1, device=end.device) <= (end - start).unsqueeze(1)
        if lanes.mask is not None:
            inside &= lanes.mask.unsqueeze(1)
        reward, steps, cut = (self._take(name, at) for name in ("reward", "steps", "cut"))
        cut[:, -1] = False  # the end has no successor
        reward = reward.double().masked_fill_(cut, torch.nan)
        returns = discounted_sums(reward.t(), steps.t(), gamma, lanes.masked).t()
        timed_out = ~self._take("terminated", at[:, -1:]).expand_as(inside)
        rows, complete = at.flatten(), not lanes.masked and bool(inside.all())
        for name, value in (("mc_return", returns.float()), (self.TIMED_OUT, timed_out)):
            kept = value if complete else torch.where(inside, value, self._take(name, at))
            self._column(name).index_copy_(0, rows, kept.flatten())

    def _newest(self, lanes: Lanes, count: int) -> Int[Tensor, "k count"]:
        """Rows of the newest `count` decisions of these lanes in a `_column`, the newest last.

        Lane after lane, as they lie in memory: with time first, each number would be in another cache line.
        """
        first = (lanes.read(self.head) - count).remainder(self.slots)
        turn = first.unsqueeze(1) + torch.arange(count, device=first.device)  # below 2 * slots
        ring = torch.arange(self.slots, device=first.device).repeat(2)  # a table: remainders cost more
        slot = ring.index_select(0, turn.flatten()).view_as(turn)
        return slot.add_((lanes.ids * self.slots).unsqueeze(1))

    def _take(self, name: str, rows: Int[Tensor, "k t"]) -> Tensor:
        """Entries (k, t) of a column of numbers."""
        return self._column(name).index_select(0, rows.flatten()).view_as(rows)

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
        filled = self._held()
        ends = filled.cumsum(0)
        # A remainder of 62 random bits: `randint` needs its limit on the host.
        flat = torch.randint(2**62, (size,), generator=generator, device=ends.device) % ends[-1]
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
            pictures=self._pictures("frame", lane, at),
            next_pictures=self._pictures("next_frame", lane, to),
        )

    def _held(self) -> Int[Tensor, " n"]:
        """Number of decisions of every lane that can be sampled, the newest ones."""
        stored = self.head.clamp(max=self.slots)
        if self.frames is None:
            return stored
        written = torch.arange(self.slots, device=stored.device) < stored.unsqueeze(1)
        window_start = self.data["frame"] - (self.frames.obs_steps - 1)
        return stored - (written & (window_start < self.frames.oldest.unsqueeze(1))).sum(1)

    def _pictures(self, name: str, lane: Int[Tensor, " b"], rows: Int[Tensor, " b"]) -> Obs:
        return {} if self.frames is None else self.frames.windows(lane, self._column(name)[rows])

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
        index = first.unsqueeze(1) + torch.arange(n_step, device=first.device)  # (b, n)
        rows = self._rows(lane.unsqueeze(1), index)
        ends = self._column("terminated")[rows] | self._column("truncated")[rows] | self._column("cut")[rows]
        follows = (index[:, 1:] < self.head[lane].unsqueeze(1)) & ~ends[:, :-1]
        starts = torch.ones_like(first, dtype=torch.float32).unsqueeze(1)
        used = torch.cat([starts, follows.float()], dim=1).cumprod(dim=1)  # (b, n), 1 or 0
        steps = used * self._column("steps")[rows]
        before = steps.cumsum(dim=1) - steps  # environment steps before each decision
        reward = (used * gamma**before * self._column("reward")[rows]).sum(dim=1)
        return reward, gamma ** steps.sum(dim=1), first + used.sum(dim=1).long() - 1

    def state_dict(self) -> dict[str, Any]:
        """The filled part only, so that early checkpoints are small."""
        used = int(self.head.max().clamp(max=self.slots))
        state: dict[str, Any] = {name: value[:, :used].clone() for name, value in self.data.items()}
        pictures = {} if self.frames is None else {"frames": self.frames.state_dict()}
        return state | pictures | {"head": self.head.clone(), "episode_start": self.episode_start.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
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
        if self.frames is not None:
            self.frames.load_state_dict(state["frames"])
        self.head.copy_(state["head"])
        self.episode_start.copy_(state["episode_start"])
        self._filled = False
        for name, value in self.data.items():
            value.zero_()
            value[:, : state[name].shape[1]] = state[name]


def discounted_sums(
    reward: Float64[Tensor, "t k"], steps: Float[Tensor, "t k"], gamma: float, parallel: bool
) -> Float64[Tensor, "t k"]:
    """Sum of rewards from each row to the last; a row's `steps` discount what follows it.

    parallel: recursive doubling, log2(t) operations on all rows, for devices on which each operation has a
    price; else one operation per row.
    """
    if parallel:
        return _sums_by_doubling(reward, torch.pow(gamma, steps.double()))
    fewest, most = (int(bound) for bound in steps.aminmax())
    if fewest == most:
        for now in range(len(reward) - 2, -1, -1):
            reward[now].add_(reward[now + 1], alpha=gamma**most)
        return reward
    powers = torch.pow(gamma, torch.arange(most + 1, dtype=torch.float64, device=steps.device))
    discount = powers.index_select(0, steps.long().flatten()).view_as(steps)  # a table: pow costs more
    for now in range(len(reward) - 2, -1, -1):
        reward[now].addcmul_(discount[now], reward[now + 1])
    return reward


def _sums_by_doubling(
    reward: Float64[Tensor, "t k"], discount: Float64[Tensor, "t k"]
) -> Float64[Tensor, "t k"]:
    """After round i, `total` holds the sum over the next 2^i rows and `weight` their discount."""
    total, weight, shift = reward, discount, 1
    while shift < len(total):
        # The last `shift` rows are complete: after the last row there is nothing to add.
        total = torch.cat([total[:-shift] + weight[:-shift] * total[shift:], total[-shift:]])
        weight = torch.cat([weight[:-shift] * weight[shift:], weight[-shift:]])
        shift *= 2
    return total
