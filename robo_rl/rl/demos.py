"""Demonstrations as a replay buffer, with the base policy's own action in each demonstrated state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.action_map import ActionMap
from robo_rl.core.conditioning import Condition, encode, pooled
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import ChunkPolicy, Obs, PictureEncoder
from robo_rl.core.seeding import episode_noise
from robo_rl.core.shapes import Bool, Float, Float32, Int
from robo_rl.data.frames import FrameRing
from robo_rl.data.replay import Replay

_BLOCK_ROWS = 256  # observations per batch of the base's encoder


@runtime_checkable
class DemoEpisode(Protocol):
    """One recorded episode. Observations may have one row more than actions: the one after the last action.

    success: None where it was not recorded.
    """

    @property
    def frames(self) -> int: ...
    @property
    def action(self) -> Float32[ndarray, "n a"]: ...
    @property
    def reward(self) -> Float32[ndarray, " n"]: ...
    @property
    def terminated(self) -> Bool[ndarray, " n"]: ...
    @property
    def success(self) -> bool | None: ...
    def obs(self, key: str) -> ndarray: ...


def demo_replay(
    episodes: Iterable[DemoEpisode],
    base: ChunkPolicy,
    action_map: ActionMap,
    widths: Mapping[str, int],
    gamma: float,
    noise_scale: float = 1.0,
    reward_scale: float = 1.0,
    reward_bias: float = 0.0,
    recorded: bool = False,
    device: torch.device | str = "cpu",
    encoder: PictureEncoder | None = None,
    frames: Callable[[list[DemoEpisode]], FrameRing] | None = None,
) -> Replay:
    """A replay buffer of one lane that holds the demonstrations, without failed ones. device: of it and the
    base. encoder: of a run that learns from pictures, which the replay then holds in place of features.
    frames: makes their memory.

    By default the reward is 1 at the last action, which terminates the episode, and 0 before. recorded: use
    the recorded rewards and terminations instead, for environments with a reward at every step. An episode
    that did not terminate then counts as truncated, and its last step is used only if the observation after
    it was recorded. The stored reward is reward_scale * reward + reward_bias at every step, as in the
    collector.

    The context of a residual is the base's own action in each demonstrated state, planned every `execute`
    steps as in execution. Raises ConfigError for steering, because the noise behind a demonstrated action is
    unknown, and if no episode succeeded.
    """
    if action_map.timescale == "chunk":
        raise ConfigError(
            "Demonstrations hold actions of single steps, which a method that decides entire chunks cannot "
            "replay. Set method.mix.demo=0 method.mix.online=1."
        )
    every = list(episodes)
    chosen = chosen_episodes(every)
    if not chosen:
        raise ConfigError(
            f"None of the {len(every)} demonstrations succeeded. Record successful ones, or set "
            "method.mix.demo=0 method.mix.online=1."
        )
    if recorded and not any(np.any(episode.reward) for episode in chosen):
        raise ConfigError(
            "The demonstrations hold no rewards, but this environment gives a reward at every step. Train "
            "with reward=sparse if the environment has it, or without demonstrations: method.mix.demo=0 "
            "method.mix.online=1."
        )
    ring = None if frames is None else frames(chosen)
    store = Replay(sum(episode.frames for episode in chosen), 1, widths, device=device, frames=ring)
    for index, episode in enumerate(chosen):
        outcome = recorded_outcome(episode) if recorded else success_outcome(episode)
        paid = outcome._replace(reward=reward_scale * outcome.reward + reward_bias)
        _add(store, episode, base, action_map, gamma, index, noise_scale, paid, encoder)
    return store


def chosen_episodes(episodes: Iterable[DemoEpisode]) -> list[DemoEpisode]:
    """Those that are replayed: all but failed ones."""
    return [episode for episode in episodes if episode.success is not False and episode.frames > 0]


class DemoOutcome(NamedTuple):
    """Reward of every step of an episode and masks of its end. n: steps."""

    reward: Float[Tensor, " n"]
    terminated: Bool[Tensor, " n"]
    truncated: Bool[Tensor, " n"]


def success_outcome(episode: DemoEpisode) -> DemoOutcome:
    """Reward 1 and termination at the last action."""
    last = torch.zeros(episode.frames, dtype=torch.bool)
    last[-1] = True
    return DemoOutcome(last.float(), last, torch.zeros_like(last))


def recorded_outcome(episode: DemoEpisode) -> DemoOutcome:
    """Recorded rewards and terminations; an episode without a termination is truncated at its last step."""
    terminated = torch.from_numpy(np.array(episode.terminated))
    truncated = torch.zeros_like(terminated)
    truncated[-1] = ~terminated[-1]
    return DemoOutcome(torch.from_numpy(np.array(episode.reward)), terminated, truncated)


def without_unobserved_step(outcome: DemoOutcome, observations: int) -> DemoOutcome:
    """The outcome without a last step whose next observation was not recorded.

    A time-out is bootstrapped from that observation.
    """
    steps = len(outcome.reward)
    if observations > steps or bool(outcome.terminated[-1]):
        return outcome
    truncated = outcome.truncated[:-1].clone()
    truncated[-1:] = True
    return DemoOutcome(outcome.reward[:-1], outcome.terminated[:-1], truncated)


def _add(
    store: Replay,
    episode: DemoEpisode,
    base: ChunkPolicy,
    action_map: ActionMap,
    gamma: float,
    index: int,
    scale: float,
    outcome: DemoOutcome,
    encoder: PictureEncoder | None,
) -> None:
    # In blocks: the feature maps of all images of a long episode would take tens of gigabytes.
    device = store.head.device
    observations = {key: torch.from_numpy(np.array(episode.obs(key))).to(device) for key in base.obs_spec}
    blocks = torch.arange(len(next(iter(observations.values()))), device=device).split(_BLOCK_ROWS)

    def each_block(make: Callable[[Obs, Tensor], Tensor]) -> Tensor:
        return torch.cat([make(stacked_obs(observations, rows, base.obs_steps), rows) for rows in blocks])

    with torch.no_grad():
        conditions = [encode(base, stacked_obs(observations, rows, base.obs_steps)) for rows in blocks]
        if encoder is None:
            kept = torch.cat([pooled(condition) for condition in conditions])
        else:
            kept = each_block(lambda obs, _: encoder.states(obs))
        ctx = torch.zeros(len(kept), 0, device=device)
        if action_map.ctx_dim:
            planned = _base_actions(conditions, base, index, scale)
            ctx = each_block(lambda obs, rows: base.refine(obs, planned[rows]))
    number = _append(store, observations) if store.frames is not None else None
    outcome = DemoOutcome(*(each.to(device) for each in without_unobserved_step(outcome, len(kept))))
    action = torch.from_numpy(np.array(episode.action)).to(device)
    action = base.action_spec.normalize(action).clamp(-1.0, 1.0)
    lane, no = Lanes.all(1, device, masked=False), torch.tensor([False], device=device)
    for t in range(len(outcome.reward)):
        after = min(t + 1, len(kept) - 1)  # the next observation is not used after a termination
        values = {
            "obs": kept[t : t + 1],
            "ctx": ctx[t : t + 1],
            "critic_action": action[t : t + 1],
            "action": action[t : t + 1],
            "next_obs": kept[after : after + 1],
            "next_ctx": ctx[after : after + 1],
            "reward": outcome.reward[t : t + 1],
            "steps": torch.ones(1, device=device),
            "demo": torch.ones(1, device=device),
            "terminated": outcome.terminated[t : t + 1],
            "truncated": outcome.truncated[t : t + 1],
            "cut": no,
        }
        if number is not None:
            values |= {"frame": number[t : t + 1], "next_frame": number[after : after + 1]}
        store.add(lane, values, gamma)


def _append(store: Replay, observations: Obs) -> Int[Tensor, " n"]:
    """Put the pictures of an episode into the ring of a store of one lane. Returns their numbers."""
    frames, lane = store.frames, Lanes.all(1, store.head.device, masked=False)
    assert frames is not None
    count = len(next(iter(observations.values())))
    numbers = [
        frames.append(
            lane,
            {key: observations[key][t : t + 1] for key in frames.data},
            torch.tensor([t == 0], device=store.head.device),
        )
        for t in range(count)
    ]
    return torch.cat(numbers)


def stacked_obs(observations: Obs, rows: Int[Tensor, " k"], obs_steps: int) -> Obs:
    """Observations `rows` of an episode with their history, (k, To, *shape), padded with the first one.

    observations: (n, *shape), the entire episode.
    """
    index = (rows.unsqueeze(1) + torch.arange(1 - obs_steps, 1, device=rows.device)).clamp(min=0)
    return {key: value[index] for key, value in observations.items()}


def _base_actions(
    blocks: list[Condition], base: ChunkPolicy, index: int, scale: float
) -> Float[Tensor, "n a"]:
    """Actions that the base would have executed along the demonstration, planned every `execute` steps.

    blocks: conditions of its steps, in order.
    """
    count, device = sum(map(len, blocks)), pooled(blocks[0]).device
    starts = torch.arange(0, count, base.execute, device=device)
    noise = episode_noise(index, len(starts), (base.chunk, base.action_spec.dim)).to(device) * scale
    chunks, before = [], 0
    for block in blocks:
        here = (starts >= before) & (starts < before + len(block))
        chunks.append(base.sample_from(block[starts[here] - before], noise[here])[:, : base.execute])
        before += len(block)
    return torch.cat(chunks).flatten(0, 1)[:count]
