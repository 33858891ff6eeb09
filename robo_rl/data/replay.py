"""Replay buffer with one ring per lane, so that returns never cross an episode or a lane.

Transitions are stored one decision at a time. n-step returns are computed at sampling time, from the sampled
decision onwards. This costs one gather per step, but a decision can be sampled as soon as it is stored, and
lanes may advance at different times (as decisions of chunks do).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    # discounted return to the end of the episode, also to a time-out; NaN: unknown
    mc_return: Float[Tensor, " b"]
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

    _HERE, _NEXT = ("obs", "ctx", "critic_action", "action"), ("next_obs", "next_ctx")
    VECTORS = (*_HERE, *_NEXT)
    SCALARS = ("reward", "steps", "mc_return", "demo")
    TIMED_OUT = "timed_out"  # flag: the episode ended by time-out, and later rewards are missing in mc_return
    # cut: the lane's next entry is not the successor of this one; bootstrap here
    FLAGS = ("terminated", "truncated", "cut")
    FRAMES = ("frame", "next_frame")  # numbers in `frames`

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
        shape = (lanes, self.slots)
        # Columns that are sampled together lie together in memory: one gather finds them all.
        self._vectors, self._following = (
            torch.zeros(*shape, sum(widths[name] for name in names), device=device)
            for names in (self._HERE, self._NEXT)
        )
        self._scalars = torch.zeros(*shape, len(self.SCALARS), device=device)
        self._flags = torch.zeros(*shape, len(self.FLAGS) + 1, dtype=torch.bool, device=device)
        self._widths = [[widths[name] for name in names] for names in (self._HERE, self._NEXT)]
        self.data: dict[str, Tensor] = {}  # views of the columns (lanes, slots, width) or (lanes, slots)
        self.data |= zip(self._HERE, self._vectors.split(self._widths[0], -1), strict=True)
        self.data |= zip(self._NEXT, self._following.split(self._widths[1], -1), strict=True)
        self.data |= zip(self.SCALARS, self._scalars.unbind(-1), strict=True)
        self.data |= zip((*self.FLAGS, self.TIMED_OUT), self._flags.unbind(-1), strict=True)
        self.data |= {name: torch.zeros(*shape, width, device=device) for name, width in self._extra.items()}
        numbers = () if frames is None else self.FRAMES
        self.data |= {name: torch.zeros(shape, dtype=torch.long, device=device) for name in numbers}
        self._apart = (*numbers, *self._extra)
        # Number of decisions ever stored, per lane, and its value at the start of the running episode.
        self.head = torch.zeros(lanes, dtype=torch.long, device=device)
        self.episode_start = torch.zeros_like(self.head)
        self.on_add: Callable[..., None] | None = None  # gets (number of lanes, lanes, values) of `add`
        self._filled = False  # True once a decision is known to be stored

    def __len__(self) -> int:
        return int(self._held().sum())

    @property
    def empty(self) -> bool:
        """True if there is nothing to sample. Reads the device until there is something, and never again."""
        self._filled = self._filled or len(self) > 0
        return not self._filled

    def add(self, lanes: Lanes, values: Mapping[str, Tensor], gamma: float) -> None:
        """Store one decision of each of these lanes; at an episode's end, compute its returns.

        values: every vector, `reward`, `steps`, `demo` and all flags, with k rows; other entries are ignored.
        """
        if self.on_add is not None:
            self.on_add(self.lanes, lanes, values)
        slot = lanes.read(self.head) % self.slots
        unknown = torch.full_like(slot, torch.nan, dtype=torch.float32)
        given = dict(values) | {
            "mc_return": unknown,
            self.TIMED_OUT: torch.zeros_like(slot, dtype=torch.bool),
        }
        written = [
            (self._vectors, torch.cat([given[name].float() for name in self._HERE], dim=-1)),
            (self._following, torch.cat([given[name].float() for name in self._NEXT], dim=-1)),
            (self._scalars, torch.stack([given[name].float() for name in self.SCALARS], dim=-1)),
            (
                self._flags,
                torch.stack([given[name].bool() for name in (*self.FLAGS, self.TIMED_OUT)], dim=-1),
            ),
            *((self.data[name], given[name]) for name in self._apart),
        ]
        together = self._together(lanes, slot)
        for table, rows in written:
            if together is None:
                lanes.put(table, slot, rows.to(table.dtype))
            else:
                table[:, together] = rows
        lanes.add(self.head, 1)
        if ended := lanes.where(values["terminated"] | values["truncated"]):
            self._close_episodes(ended, gamma)

    def set_last_reward(self, lanes: Lanes, reward: float) -> None:
        """Overwrite the reward of the newest decision of these lanes (RLIF: -1 before an intervention)."""
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
            self.data[name].flatten(0, 1).index_copy_(0, rows, kept.flatten())

    def _newest(self, lanes: Lanes, count: int) -> Int[Tensor, "k count"]:
        """Rows of the newest `count` decisions of these lanes over all lanes, the newest last.

        Lane after lane, as they lie in memory: with time first, each number would be in another cache line.
        """
        first = (lanes.read(self.head) - count).remainder(self.slots)
        turn = first.unsqueeze(1) + torch.arange(count, device=first.device)  # below 2 * slots
        ring = torch.arange(self.slots, device=first.device).repeat(2)  # a table: remainders cost more
        slot = ring.index_select(0, turn.flatten()).view_as(turn)
        return slot.add_((lanes.ids * self.slots).unsqueeze(1))

    def _take(self, name: str, rows: Int[Tensor, "k t"]) -> Tensor:
        """Entries (k, t) of a column of numbers."""
        return _gather(self.data[name], rows)

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
        lane, first = self._draw(size, generator)
        reward, discount, at, to, numbers = self._n_step(lane, first, gamma, n_step)
        mc_return = floor = numbers[:, 2]
        flags = _gather(self._flags, to)
        stop = flags[:, 0]
        if timeout_is_failure:
            stop = stop | flags[:, 1]
        else:
            timed_out = flags if to is at else _gather(self._flags, at)
            floor = floor.masked_fill(timed_out[:, -1], torch.nan)
        vectors = _gather(self._vectors, at).split(self._widths[0], -1)
        following = _gather(self._following, to).split(self._widths[1], -1)
        return Batch(
            **dict(zip(self._HERE, vectors, strict=True)),
            **dict(zip(self._NEXT, following, strict=True)),
            reward=reward,
            discount=discount.masked_fill(stop, 0.0),
            mc_return=mc_return,
            return_floor=floor,
            demo=numbers[:, 3],
            pictures=self._pictures("frame", lane, at),
            next_pictures=self._pictures("next_frame", lane, to),
        )

    def _draw(
        self, size: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, " b"] | None, Int[Tensor, " b"]]:
        """(lanes, indices in them) of uniformly drawn decisions; no lanes where there is only one."""
        filled = self._held()
        ends = filled.cumsum(0) if self.lanes > 1 else filled
        # A remainder of 62 random bits: `randint` needs its limit on the host.
        flat = torch.randint(2**62, (size,), generator=generator, device=ends.device) % ends[-1]
        if self.lanes == 1:
            return None, flat + (self.head - ends)
        lane = torch.searchsorted(ends, flat, right=True)
        return lane, flat + (self.head - ends)[lane]

    def _held(self) -> Int[Tensor, " n"]:
        """Number of decisions of every lane that can be sampled, the newest ones."""
        stored = self.head.clamp(max=self.slots)
        if self.frames is None:
            return stored
        written = torch.arange(self.slots, device=stored.device) < stored.unsqueeze(1)
        window_start = self.data["frame"] - (self.frames.obs_steps - 1)
        return stored - (written & (window_start < self.frames.oldest.unsqueeze(1))).sum(1)

    def _pictures(self, name: str, lane: Int[Tensor, " b"] | None, rows: Int[Tensor, " b"]) -> Obs:
        if self.frames is None:
            return {}
        return self.frames.windows(
            torch.zeros_like(rows) if lane is None else lane, _gather(self.data[name], rows)
        )

    def _rows(self, lane: Int[Tensor, "..."] | None, index: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Row of decision `index` of a lane over all lanes."""
        slot = index % self.slots
        return slot if lane is None else slot.add_(lane, alpha=self.slots)

    def _n_step(
        self, lane: Int[Tensor, " b"] | None, first: Int[Tensor, " b"], gamma: float, n_step: int
    ) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"], Int[Tensor, " b"], Int[Tensor, " b"], Tensor]:
        """Sum of rewards, product of discounts, rows of the decision and of the last one, `SCALARS`."""
        if n_step == 1:
            numbers = _gather(self._scalars, at := self._rows(lane, first))
            return numbers[:, 0], gamma ** numbers[:, 1], at, at, numbers
        index = first.unsqueeze(1) + torch.arange(n_step, device=first.device)  # (b, n)
        rows = self._rows(None if lane is None else lane.unsqueeze(1), index)
        numbers = _gather(self._scalars, rows)
        flags = _gather(self._flags, rows)
        ends = flags[:, :-1, :3].any(-1)
        head = self.head if lane is None else self.head[lane].unsqueeze(1)
        follows = (index[:, 1:] < head) & ~ends
        used = torch.ones_like(numbers[..., 0])  # 1 or 0
        used[:, 1:] = follows.cumprod(dim=1)
        steps = used * numbers[..., 1]
        before = steps.cumsum(dim=1) - steps  # environment steps before each decision
        reward = (used * gamma**before * numbers[..., 0]).sum(dim=1)
        last = used.sum(dim=1, dtype=torch.long).sub_(1).unsqueeze(1)
        to = rows.gather(1, last).squeeze(1)
        return reward, gamma ** steps.sum(dim=1), rows[:, 0], to, numbers[:, 0]

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


def _gather(table: Tensor, rows: Int[Tensor, "..."]) -> Tensor:
    """Entries of these rows, counted over lanes and slots as one axis, which costs half as much as two."""
    found: Tensor = table.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, rows.shape)
    return found


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
