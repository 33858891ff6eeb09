"""Demonstrations as replay: what the demonstrator did, beside what the base would have done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.action_map import ActionMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.seeding import episode_noise
from robo_rl.core.shapes import Bool, Float, Float32, Int
from robo_rl.data.replay import Replay

_BLOCK_ROWS = 256  # observations that go through the base's encoder at once


@runtime_checkable
class DemoEpisode(Protocol):
    """One recorded episode; observations may have one row more than actions, the one after the last action.

    success: None where nobody said.
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
) -> Replay:
    """Demonstrations in one lane, the failed ones left out: reward 1 and the end at their last action, 0
    before.

    recorded: with the rewards and endings as they were recorded instead, for an environment that pays at
    every step; an episode that did not terminate ran out of time, and its last step counts only where the
    observation after it was recorded. As in the collector, what is learned is reward_scale * reward +
    reward_bias, at every step.

    For a residual the context is the base's own action at each demonstrated state, planned at the rhythm at
    which the base is executed. Raises ConfigError for steering, where a demonstrator's noise is not known,
    and when there is no success among the episodes.
    """
    if action_map.timescale == "chunk":
        raise ConfigError(
            "Demonstrations hold actions of single steps; a method that decides whole chunks cannot replay "
            "them. Set method.mix.demo=0 method.mix.online=1."
        )
    every = list(episodes)
    chosen = [episode for episode in every if episode.success is not False and episode.frames > 0]
    if not chosen:
        raise ConfigError(
            f"None of the {len(every)} demonstrations is a success to learn from. Record some, or set "
            "method.mix.demo=0 method.mix.online=1."
        )
    if recorded and not any(np.any(episode.reward) for episode in chosen):
        raise ConfigError(
            "The demonstrations hold no rewards, and this environment pays at every step. Train with "
            "reward=sparse where the environment has it, or go without them by method.mix.demo=0 "
            "method.mix.online=1."
        )
    store = Replay(sum(episode.frames for episode in chosen), 1, widths)
    for index, episode in enumerate(chosen):
        outcome = recorded_outcome(episode) if recorded else success_outcome(episode)
        paid = outcome._replace(reward=reward_scale * outcome.reward + reward_bias)
        _add(store, episode, base, action_map, gamma, index, noise_scale, paid)
    return store


class DemoOutcome(NamedTuple):
    """What every step of an episode was worth, and how the episode ended; rows are steps."""

    reward: Float[Tensor, " n"]
    terminated: Bool[Tensor, " n"]
    truncated: Bool[Tensor, " n"]


def success_outcome(episode: DemoEpisode) -> DemoOutcome:
    """Success at the last action, which ends the episode."""
    last = torch.zeros(episode.frames, dtype=torch.bool)
    last[-1] = True
    return DemoOutcome(last.float(), last, torch.zeros_like(last))


def recorded_outcome(episode: DemoEpisode) -> DemoOutcome:
    """As it was recorded; the clock ended what did not end by itself."""
    terminated = torch.from_numpy(np.array(episode.terminated))
    truncated = torch.zeros_like(terminated)
    truncated[-1] = ~terminated[-1]
    return DemoOutcome(torch.from_numpy(np.array(episode.reward)), terminated, truncated)


def known_outcome(outcome: DemoOutcome, observations: int) -> DemoOutcome:
    """Without the last step where nobody saw what it led to: a time-out is bootstrapped from there."""
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
) -> None:
    # Block by block: the feature maps of all pictures of a long episode would be tens of gigabytes.
    seen = {key: torch.from_numpy(np.array(episode.obs(key))) for key in base.obs_spec}
    blocks = torch.arange(len(next(iter(seen.values())))).split(_BLOCK_ROWS)
    with torch.no_grad():
        features = torch.cat([base.features(stacked_obs(seen, rows, base.obs_steps)) for rows in blocks])
        ctx = torch.zeros(len(features), 0)
        if action_map.ctx_dim:
            planned = _base_actions(features, base, index, scale)
            ctx = torch.cat(
                [base.refine(stacked_obs(seen, rows, base.obs_steps), planned[rows]) for rows in blocks]
            )
    outcome = known_outcome(outcome, len(features))
    action = base.action_spec.normalize(torch.from_numpy(np.array(episode.action))).clamp(-1.0, 1.0)
    lane, no = torch.tensor([0]), torch.tensor([False])
    for t in range(len(outcome.reward)):
        after = min(t + 1, len(features) - 1)  # a termination looks at nothing behind it
        values = {
            "obs": features[t : t + 1],
            "ctx": ctx[t : t + 1],
            "critic_action": action[t : t + 1],
            "action": action[t : t + 1],
            "next_obs": features[after : after + 1],
            "next_ctx": ctx[after : after + 1],
            "reward": outcome.reward[t : t + 1],
            "steps": torch.tensor([1]),
            "demo": torch.ones(1),
            "terminated": outcome.terminated[t : t + 1],
            "truncated": outcome.truncated[t : t + 1],
            "cut": no,
        }
        store.add(lane, values, gamma)


def stacked_obs(seen: Obs, rows: Int[Tensor, " k"], obs_steps: int) -> Obs:
    """These observations of an episode with their history, (k, To, *shape); the first one repeated at the
    start.

    seen: (n, *shape), all observations of the episode.
    """
    index = (rows.unsqueeze(1) + torch.arange(1 - obs_steps, 1)).clamp(min=0)
    return {key: value[index] for key, value in seen.items()}


def _base_actions(features: Tensor, base: ChunkPolicy, index: int, scale: float) -> Float[Tensor, "n a"]:
    """What the base would have executed along the demonstration, a fresh chunk every `execute` steps."""
    starts = torch.arange(0, len(features), base.execute)
    noise = episode_noise(index, len(starts), (base.chunk, base.action_spec.dim)) * scale
    chunks = base.sample_from(features[starts], noise)[:, : base.execute]
    return chunks.flatten(0, 1)[: len(features)]
