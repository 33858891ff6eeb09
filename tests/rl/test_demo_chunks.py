"""Demonstrations as decisions of chunks: hand-worked sums, and equality with what the collector stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.action_map import ActionMap, CandidateMap, ChainMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import EpisodeSeeds, derive_seed, episode_noise
from robo_rl.data.replay import Replay
from robo_rl.rl import demos
from robo_rl.rl.collect import Collector
from robo_rl.rl.demo_decisions import DemoDecisions
from robo_rl.rl.demo_outcomes import recorded_outcome
from robo_rl.rl.demos import demo_replay
from robo_rl.rl.running import RewardTransform
from sim.vec.workers import WorkerVecEnv
from tests.policies.small import flow_policy
from tests.rl.test_demos import Demo
from tests.rl.worlds import LIMIT, SPEC, TargetLane, widths

HEAD = ChainMap(4, 1, 0, 2)  # of FQL
MAPS = {
    "candidates": CandidateMap(1, 2, 3, 0.1),
    "residual of chunks": ResidualMap(1, 0.2, steps=2),
    "head": HEAD,
    "DSRL-NA": LatentMap(4, 1, 1.5),
    "DSRL-NA from the base's noise": LatentMap(4, 1, 1.5, "gaussian"),
}
ROOT = ("demonstrated", 1)


@dataclass
class Moving(Demo):
    """Its actions are 0, 0.1, 0.2, ... in [-1, 1]."""

    @property
    def action(self) -> NDArray[np.float32]:
        return LIMIT * 0.1 * np.arange(self.frames, dtype=np.float32)[:, None]


def replay(demo: Any, action_map: ActionMap = HEAD, gamma: float = 0.5, **how: Any) -> Replay:
    return demo_replay([demo], flow_policy(SPEC), action_map, widths(action_map), gamma, **how)


def column(store: Replay, name: str) -> list[Any]:
    return store.data[name][0, : len(store)].tolist()


def test_chunks_start_at_every_step_and_end_with_the_episode() -> None:
    """Seven steps in chunks of three: 0-2 3-5 6, 1-3 4-6, 2-4 5-6."""
    found = DemoDecisions.of(7, 3)
    assert found.start.tolist() == [0, 3, 6, 1, 4, 2, 5]
    assert found.end.tolist() == [3, 6, 7, 4, 7, 5, 7]
    assert DemoDecisions.of(4, 1).start.tolist() == [0, 1, 2, 3]
    assert len(DemoDecisions.of(0, 3).start) == 0


def test_rewards_of_a_short_episode() -> None:
    """r - 1 = -1, -1, -1, -1, 0 and gamma 0.5, in chunks 0-1, 2-3, 4, 1-2, 3-4: -1 - 0.5 = -1.5 for whole
    ones, 0 for the short last one, -1 + 0.5 * 0 for 3-4. Returns of chunks 0-1 and 1-2, over the following
    ones: -1.5 - 0.25 * 1.5 + 0.0625 * 0 and -1.5 - 0.25 * 1.
    """
    store = replay(Moving(5), reward_bias=-1.0)
    assert column(store, "reward") == [-1.5, -1.5, 0.0, -1.5, -1.0]
    assert column(store, "steps") == [2.0, 2.0, 1.0, 2.0, 2.0]
    assert column(store, "terminated") == [False, False, True, False, True]
    assert column(store, "truncated") == column(store, "cut") == [False] * 5
    assert column(store, "mc_return") == [-1.875, -1.5, 0.0, -1.75, -1.0]
    assert column(store, "demo") == [1.0] * 5


def test_sums_over_decisions_follow_the_episode() -> None:
    """Two decisions from 0-1: reward 1 at step 3 of 4 is 0.5^3, four steps later nothing follows. One that
    ends the episode stops the sum.
    """
    store = replay(Moving(4))
    batch = store.sample(64, torch.Generator().manual_seed(0), gamma=0.5, n_step=2)
    found = {(round(r, 4), d) for r, d in zip(batch.reward.tolist(), batch.discount.tolist(), strict=True)}
    assert found == {(0.125, 0.0), (0.5, 0.0), (0.25, 0.0), (1.0, 0.0)}  # from steps 0, 2, 1 and 3
    assert store.sample(8, torch.Generator(), gamma=0.5).discount.max() <= 0.25  # 0.5^2 for whole chunks


def test_last_action_is_repeated_beyond_the_end() -> None:
    """Actions 0, .1, .2, .3, .4: the chunk of step 4 is (.4, .4), as in the windows of the base's data."""
    store = replay(Moving(5))
    chunks = torch.tensor([[0.0, 0.1], [0.2, 0.3], [0.4, 0.4], [0.1, 0.2], [0.3, 0.4]])
    torch.testing.assert_close(store.data["action"][0], chunks)
    assert torch.equal(store.data["critic_action"], store.data["action"])


def test_unobserved_end_is_left_out_of_a_time_out() -> None:
    """Five recorded steps without the last observation: four steps, bootstrapped from the fifth observation.
    The fifth action is known, and is what would have followed.
    """
    store = replay(Moving(5, final_obs=False), outcome_of=recorded_outcome)
    assert len(store) == 4
    assert column(store, "truncated") == [False, True, False, True]
    assert column(store, "reward") == [0.75, 0.75, 0.75, 0.5]
    torch.testing.assert_close(store.data["action"][0, 3], torch.tensor([0.3, 0.4]))


def test_chunks_of_a_human_alone_are_held() -> None:
    """A human acts in step 3 of 6: chunks 2-3 and 3-4 are held. After each the sum is cut, since 4-5 and 5
    are not held.
    """
    store = replay(Moving(6, human=(3,)), human_only=True)
    assert column(store, "action") == pytest.approx(np.array([[0.2, 0.3], [0.3, 0.4]]))
    assert column(store, "cut") == [True, True]


def test_context_of_candidates_is_drawn_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first draw is from the base's own noise, the others are from N(0, I); the next context is that of
    the next decision, and of the last observation. In pieces and at once they are equal.
    """
    base, action_map = flow_policy(SPEC), CandidateMap(1, 2, 3)
    store = replay(Moving(600), action_map, noise_scale=0.0)
    monkeypatch.setattr(demos, "_BLOCK_ROWS", 1000)
    whole = replay(Moving(600), action_map, noise_scale=0.0)
    for name in ("ctx", "next_ctx"):
        torch.testing.assert_close(store.data[name], whole.data[name])
    obs, ctx = store.data["obs"][0, :2], store.data["ctx"][0, :2].view(2, 3, 2)  # of steps 0 and 2
    further = episode_noise(derive_seed("further draws", 0), 601, (2, 4, 1))[[0, 2]]
    zero = torch.zeros(2, 4, 1)
    for draw, noise in enumerate((zero, further[:, 0], further[:, 1])):
        torch.testing.assert_close(ctx[:, draw], base.sample_from(obs, noise)[:, :2].flatten(1))
    assert torch.equal(store.data["next_ctx"][0, :299], store.data["ctx"][0, 1:300])
    own = base.sample_from(store.data["next_obs"][0, 299:300], zero[:1])[:, :2, 0]
    torch.testing.assert_close(store.data["next_ctx"][0, 299:300, :2], own)


def test_noise_behind_a_demonstration_is_unknown() -> None:
    """Critics of noise are refused; those of DSRL-NA read the action, and no noise is made up."""
    latent = LatentMap(4, 1, 1.5)
    with pytest.raises(ConfigError, match=r"that behind a demonstrated action is unknown.*dsrl_na"):
        replay(Moving(3), latent)
    store = replay(Moving(3), latent, noise_aliased=True)
    assert store.data["critic_action"].isnan().all()
    torch.testing.assert_close(store.data["action"][0, 1], torch.tensor([0.2, 0.2]))


# Equality with the collector


class Recorded(Demo):
    """An executed episode of the toy world: five steps, the last of which reaches the target."""

    def __init__(self, seed: int) -> None:
        super().__init__(5)
        lane = TargetLane()
        states, first = [lane.reset(seed)["state"]], float(lane._state[0] - lane._state[1])
        assert first > 1.0  # the episode would end before the last step
        self.moves = (LIMIT * first * np.array([0.1, 0.3, 0.1, 0.2, 0.3], np.float32))[:, None]
        ends = []
        for move in self.moves:
            obs, _, ended, _, _ = lane.step(move)
            states.append(obs["state"])
            ends.append(ended)
        assert ends == [False] * 4 + [True]
        self.states = np.stack(states)

    @property
    def action(self) -> NDArray[np.float32]:
        return self.moves

    def obs(self, key: str) -> NDArray[np.float32]:
        return self.states


def replaying(demo: Recorded) -> Any:
    """A base that plans what the demonstrator did from here, from any noise."""
    base = flow_policy(SPEC)
    rows = torch.arange(6)
    known = base.features({"state": torch.from_numpy(demo.states)[torch.stack([rows - 1, rows], 1).clamp(0)]})
    actions = base.action_spec.normalize(torch.from_numpy(demo.action))

    def sample_from(features: Tensor, noise: Tensor) -> Tensor:
        at = torch.cdist(features, known).argmin(1)
        return actions[(at.unsqueeze(1) + torch.arange(4)).clamp(max=4)]

    base.sample_from = sample_from  # type: ignore[method-assign]
    base.sample = lambda obs, noise: sample_from(base.features(obs), noise)  # type: ignore[method-assign]
    return base


@pytest.mark.parametrize("name", MAPS)
def test_demonstration_is_stored_as_the_collector_stores_its_execution(name: str) -> None:
    """Five steps in chunks of two: the collector's three decisions are the first three of the demonstration,
    column by column, but for the mark of demonstrations and for DSRL-NA's noise, which is unknown.
    """
    action_map, gamma = MAPS[name], 0.9
    demo = Recorded(next(EpisodeSeeds(ROOT)))
    base, noise_aliased = replaying(demo), isinstance(action_map, LatentMap)
    store = demo_replay(
        [demo], base, action_map, widths(action_map), gamma, 0.0, 2.0, -1.0, noise_aliased=noise_aliased
    )
    found = Replay(60, 1, widths(action_map))
    shape = (4, 1)
    further = None
    if isinstance(action_map, CandidateMap):
        further = EpisodeNoise((2 * 4, 1), 1.0, stream=7)
    env = WorkerVecEnv(TargetLane, 1)
    collector = Collector(
        env, ChunkExecutor(base, 1), EpisodeNoise(shape, 0.0), action_map, gamma, found, None,
        RewardTransform(2.0, -1.0), others=further,
    )  # fmt: skip
    collector.reset(env.reset(EpisodeSeeds(ROOT)), [next(EpisodeSeeds(ROOT))])
    for _ in range(5):
        collector.begin(None)
        collector.finish()
    env.close()
    assert len(found) == 3
    assert len(store) == 5
    assert set(store.data) == set(found.data)
    left_out = {"demo"} | ({"critic_action"} if noise_aliased else set())
    for column_name in store.data.keys() - left_out:
        ours, theirs = store.data[column_name][0, :3], found.data[column_name][0, :3]
        torch.testing.assert_close(ours, theirs, msg=lambda text, at=column_name: f"{at}: {text}")
    assert found.data["terminated"][0, :3].tolist() == [False, False, True]
    assert found.data["steps"][0, :3].tolist() == [2.0, 2.0, 1.0]
