"""Demonstrations as a replay buffer, with the base policy's own action in each demonstrated state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.action_map import ActionMap, LatentMap
from robo_rl.core.conditioning import Condition, encode, memory_shape, pooled
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import ChunkPolicy, Obs, StateReader
from robo_rl.core.seeding import episode_noise
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.data.frames import FrameRing
from robo_rl.data.replay import Replay
from robo_rl.rl.demo_decisions import DemoDecisions, chunk_contexts
from robo_rl.rl.demo_outcomes import (
    DemoEpisode,
    DemoOutcome,
    recorded_outcome,
    success_outcome,
    take_over_outcome,
    without_unobserved_step,
)
from robo_rl.rl.progress.shaping import PotentialShaping

WITHOUT_DEMOS = "set method.mix.demo=0 method.mix.online=1"
_BLOCK_ROWS = 256  # observations per batch of the base's encoder


def demo_replay(
    episodes: Iterable[DemoEpisode],
    base: ChunkPolicy,
    action_map: ActionMap,
    widths: Mapping[str, int],
    gamma: float,
    noise_scale: float = 1.0,
    reward_scale: float = 1.0,
    reward_bias: float = 0.0,
    outcome_of: Callable[[DemoEpisode], DemoOutcome] = success_outcome,
    human_only: bool = False,
    device: torch.device | str = "cpu",
    encoder: StateReader | None = None,
    frames: Callable[[list[DemoEpisode]], FrameRing] | None = None,
    shaping: PotentialShaping | None = None,
    noise_aliased: bool = False,
) -> Replay:
    """A replay buffer of one lane that holds the demonstrations, without failed ones. device: of it and the
    base. encoder: makes the numbers that the replay holds in place of the base's features (None: it holds
    these). frames: makes the memory of pictures beside them. noise_aliased: the critics learn from executed
    chunks, though the map's output is a noise (DSRL-NA).

    outcome_of: rewards and ends of an episode. By default the reward is 1 at the last action, which
    terminates the episode, and 0 before. `recorded_outcome`: what was recorded, for environments with a
    reward at every step; an episode that did not terminate counts as truncated, and its last step is used
    only if the observation after it was recorded. `take_over_outcome`: the interventions are the reward,
    failed episodes are used too, and where a human took over, only the human's steps count as demonstrated.
    The stored reward of a step is reward_scale * reward + reward_bias, shaped by `shaping` (None: not at
    all), as in the collector. human_only: hold the decisions alone in which a human acted.

    A map that decides every step gets every step; the context of a residual is the base's own action in each
    demonstrated state, planned every `execute` steps as in execution. A map that decides chunks gets the
    `execute` actions from every step on (`demo_decisions`); their context is drawn for each of them. Raises
    ConfigError for steering with critics of the noise, which is unknown for a demonstrated action, for a base
    with a memory, and if no episode succeeded.
    """
    check_noise_is_known(steering=isinstance(action_map, LatentMap), noise_aliased=noise_aliased)
    chosen = replayable(episodes, base, outcome_of, human_only=human_only)
    ring = None if frames is None else frames(chosen)
    store = Replay(sum(episode.frames for episode in chosen), 1, widths, device=device, frames=ring)
    writer = _DemoWriter(store, base, action_map, gamma, noise_scale, encoder, shaping)
    for index, episode in enumerate(chosen):
        outcome = outcome_of(episode)
        outcome = outcome._replace(reward=reward_scale * outcome.reward + reward_bias)
        human, every_step = np.array(episode.intervention), np.ones(episode.frames, bool)
        held = human if human_only else every_step
        shown = human if outcome_of is take_over_outcome and human.any() else every_step
        writer.add(index, episode, outcome, held, shown)
    return store


def check_noise_is_known(*, steering: bool, noise_aliased: bool) -> None:
    """Raise ConfigError for critics of the base's noise, which no demonstration holds."""
    if steering and not noise_aliased:
        raise ConfigError(
            "These critics judge the base's noise, and that behind a demonstrated action is unknown. Set "
            "method.mix.demo=0 method.mix.online=1, or choose method=dsrl_na, whose critic judges actions."
        )


def chosen_episodes(episodes: Iterable[DemoEpisode], *, failed: bool = False) -> list[DemoEpisode]:
    """Those that are replayed: all but failed ones, or also these."""
    return [each for each in episodes if (failed or each.success is not False) and each.frames > 0]


def replayable(
    episodes: Iterable[DemoEpisode],
    base: ChunkPolicy,
    outcome_of: Callable[[DemoEpisode], DemoOutcome],
    *,
    human_only: bool,
    without: str = WITHOUT_DEMOS,
) -> list[DemoEpisode]:
    """Episodes that `demo_replay` holds. Raises ConfigError for a base with a memory, and for episodes that
    teach nothing. without: what to do instead, for the message.
    """
    if memory_shape(base) is not None:
        raise ConfigError(
            "Demonstrations hold no memory of decisions, which the base reads: to learn without "
            f"demonstrations, {without}."
        )
    every = list(episodes)
    chosen = chosen_episodes(every, failed=outcome_of is take_over_outcome)
    if not chosen:
        raise ConfigError(
            f"None of the {len(every)} demonstrations succeeded. Record successful ones, or {without}."
        )
    if outcome_of is recorded_outcome and not any(np.any(episode.reward) for episode in chosen):
        raise ConfigError(
            "The demonstrations hold no rewards, but this environment gives a reward at every step. Train "
            f"with reward=sparse if the environment has it; or, to learn without demonstrations, {without}."
        )
    if human_only and not any(np.any(episode.intervention) for episode in chosen):
        raise ConfigError(
            f"In none of the {len(chosen)} episodes of demos= did a human take over. Set "
            "method.demo_steps=all, or give episodes with interventions."
        )
    return chosen


@dataclass(frozen=True)
class _DemoWriter:
    """Writes demonstrations into `store`. The fields are arguments of `demo_replay`."""

    store: Replay
    base: ChunkPolicy
    action_map: ActionMap
    gamma: float
    noise_scale: float
    encoder: StateReader | None
    shaping: PotentialShaping | None

    def add(
        self,
        index: int,
        episode: DemoEpisode,
        outcome: DemoOutcome,
        held: Bool[ndarray, " n"],
        shown: Bool[ndarray, " n"],
    ) -> None:
        """Store the decisions with a step that is `held`. index: number of the episode, for its noise.
        shown: steps that count as demonstrated.
        """
        store, base, device = self.store, self.base, self.store.head.device
        keys = base.obs_spec if self.encoder is None else {**base.obs_spec, **self.encoder.spec}
        observations, blocks = recorded_observations(episode, keys, device)
        features, ctx = self._seen(observations, blocks, index)
        number = _append(store, observations) if store.frames is not None else None
        outcome = DemoOutcome(*(each.to(device) for each in without_unobserved_step(outcome, len(features))))
        if self.shaping is not None:
            outcome = _shaped(outcome, features, self.shaping, self.gamma)
        action = base.action_spec.normalize(torch.from_numpy(np.array(episode.action)).to(device))
        length = base.execute if self.action_map.timescale == "chunk" else 1
        decisions = DemoDecisions.of(len(outcome.reward), length, device)
        wanted = decisions.any_of(torch.from_numpy(held).to(device))
        values = decisions.columns(outcome, action.clamp(-1.0, 1.0), self.gamma)
        values |= decisions.observed(features, ctx, number)
        values["critic_action"] = values["action"]
        # The noise of a demonstrated action is unknown, and critics of actions do not read it.
        if isinstance(self.action_map, LatentMap):
            unknown = (len(wanted), self.action_map.critic_dim)
            values["critic_action"] = torch.full(unknown, torch.nan, device=device)
        values["demo"] = decisions.any_of(torch.from_numpy(shown).to(device)).float()
        values["cut"] = decisions.cut_before(wanted)
        lane = Lanes.all(1, device, masked=False)
        for row in torch.nonzero(wanted).flatten().tolist():
            store.add(lane, {name: value[row : row + 1] for name, value in values.items()}, self.gamma)

    @torch.no_grad()
    def _seen(
        self, observations: Obs, blocks: tuple[Int[Tensor, " _"], ...], index: int
    ) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n c"]]:
        """(features that the replay holds, contexts of the actor) at every observation of an episode."""
        base, action_map, encoder = self.base, self.action_map, self.encoder

        def each_block(make: Callable[[Obs, Tensor], Tensor]) -> Tensor:
            return torch.cat([make(stacked_obs(observations, rows, base.obs_steps), rows) for rows in blocks])

        chunks, rows = action_map.timescale == "chunk", torch.cat(blocks)
        # the prefix of a picture costs far more than the rest, so encode only what is read
        read = rows if chunks or encoder is None else rows[:: base.execute]
        conditions = [
            (some, encode(base, stacked_obs(observations, some, base.obs_steps)))
            for some in read.split(_BLOCK_ROWS)
        ]
        if encoder is None:
            features = torch.cat([pooled(condition) for _, condition in conditions])
        else:
            features = each_block(lambda obs, _: encoder.states(obs))
        if chunks:
            made = [condition for _, condition in conditions]
            return features, chunk_contexts(made, base, action_map, index, self.noise_scale)
        if not action_map.ctx_dim:
            return features, torch.zeros(len(features), 0, device=features.device)
        planned = _base_actions(conditions, base, index, self.noise_scale)[: len(rows)]
        return features, each_block(lambda obs, some: base.refine(obs, planned[some]))


def _shaped(
    outcome: DemoOutcome, features: Float[Tensor, "m f"], shaping: PotentialShaping, gamma: float
) -> DemoOutcome:
    """The outcome with shaped rewards. features: of the observations, in order."""
    steps = len(outcome.reward)
    after = torch.arange(1, steps + 1, device=features.device).clamp(max=len(features) - 1)
    values = {"obs": features[:steps], "next_obs": features[after], "steps": torch.ones_like(outcome.reward)}
    return outcome._replace(reward=shaping.reward(values | outcome._asdict(), gamma))


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


def recorded_observations(
    episode: DemoEpisode, keys: Iterable[str], device: torch.device | str
) -> tuple[Obs, tuple[Int[Tensor, " k"], ...]]:
    """(observations of an episode, their rows in blocks).

    The feature maps of all images of a long episode would take tens of gigabytes.
    """
    observations = {key: torch.from_numpy(np.array(episode.obs(key))).to(device) for key in keys}
    rows = torch.arange(len(next(iter(observations.values()))), device=device)
    return observations, rows.split(_BLOCK_ROWS)


def stacked_obs(observations: Obs, rows: Int[Tensor, " k"], obs_steps: int) -> Obs:
    """Observations `rows` of an episode with their history, (k, To, *shape), padded with the first one.

    observations: (n, *shape), the entire episode.
    """
    index = (rows.unsqueeze(1) + torch.arange(1 - obs_steps, 1, device=rows.device)).clamp(min=0)
    return {key: value[index] for key, value in observations.items()}


def _base_actions(
    blocks: list[tuple[Tensor, Condition]], base: ChunkPolicy, index: int, scale: float
) -> Float[Tensor, "n a"]:
    """Actions that the base would have executed along the demonstration, planned every `execute` steps.

    blocks: numbers of steps, in order, and their conditions; they hold those in which it plans.
    """
    plans = [(rows % base.execute == 0, rows, condition) for rows, condition in blocks]
    count = sum(int(planning.sum()) for planning, _, _ in plans)
    noise = episode_noise(index, count, (base.chunk, base.action_spec.dim)).to(blocks[0][0].device) * scale
    chunks = [
        base.sample_from(condition[planning], noise[rows[planning] // base.execute])[:, : base.execute]
        for planning, rows, condition in plans
    ]
    return torch.cat(chunks).flatten(0, 1)
