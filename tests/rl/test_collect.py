"""Collection: stored decisions equal executed ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.tuned.residual import ResidualPolicy
from policies.tuned.steered import SteeredPolicy
from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.replay import Replay
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.rl.collect import Collector
from robo_rl.rl.running import RewardTransform
from sim.vec.workers import WorkerVecEnv
from tests.lane_forms import FORM, FORMS, in_each_form
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, TargetLane, widths

LANES = 3
form = pytest.fixture(scope="module", autouse=True, params=FORMS)(in_each_form)


class Recording(WorkerVecEnv):
    """Environment that records its actions and results."""

    def __init__(self, overrule: bool = False) -> None:
        super().__init__(TargetLane, LANES)
        self.overrule, self.actions, self.steps = overrule, list[Tensor](), list[Any]()

    def step_async(self, action: Tensor) -> None:
        intervened = torch.tensor([self.overrule and len(self.steps) % 5 in (3, 4), False, False])
        self._intervened = intervened
        self.actions.append(torch.where(intervened.unsqueeze(1), torch.full_like(action, 2.0), action))
        super().step_async(self.actions[-1])

    def step_wait(self) -> Any:
        self.steps.append(super().step_wait())
        if self.overrule:
            self.steps[-1][4].update(executed_action=self.actions[-1], intervened=self._intervened)
        return self.steps[-1]


def collect(
    action_map: ActionMap,
    act: Any,
    steps: int = 60,
    overrule: bool = False,
    masked: bool | None = None,
    **settings: Any,
) -> tuple[Replay, Recording, Collector]:
    env, base, root = Recording(overrule), flow_policy(SPEC), ("collect",)
    store = Replay(900, LANES, widths(action_map))
    masked = FORM["masked"] if masked is None else masked
    executor, noise = ChunkExecutor(base, LANES, masked=masked), EpisodeNoise((4, 1))
    collector = Collector(env, executor, noise, action_map, 0.9, store, **settings)
    first = EpisodeSeeds(root)
    collector.reset(env.reset(EpisodeSeeds(root)), [next(first) for _ in range(LANES)])
    for _ in range(steps):
        collector.begin(act)
        collector.finish()
    env.close()
    return store, env, collector


def lane(store: Replay, index: int, name: str) -> Tensor:
    return store.data[name][index, : int(store.head[index])]


def random_act(width: int) -> Any:
    rng = torch.Generator().manual_seed(0)
    return lambda features, ctx: torch.rand(len(features), width, generator=rng) * 2.0 - 1.0


@pytest.mark.parametrize("overrule", [False, True])
def test_the_replayed_action_is_the_executed_one(overrule: bool) -> None:
    """Promise 2: after clipping and after an intervention, step for step."""
    store, env, _ = collect(ResidualMap(1, 1.0), random_act(1), overrule=overrule)
    for index in range(LANES):
        stored = lane(store, index, "action")
        executed = torch.stack([SPEC.action.normalize(a[index]) for a in env.actions])[: len(stored)]
        torch.testing.assert_close(stored, executed)
        assert torch.equal(lane(store, index, "critic_action"), stored)
    if overrule:
        assert lane(store, 0, "demo").sum() > 0
        assert lane(store, 1, "demo").sum() == 0


def test_chunk_decisions_hold_all_that_was_executed() -> None:
    """Steering: two executed actions per decision; `steps` counts them."""
    store, env, _ = collect(LatentMap(4, 1, 1.5), random_act(4))
    actions, steps = lane(store, 0, "action"), lane(store, 0, "steps").long()
    flat = torch.cat([row[:count] for row, count in zip(actions, steps.tolist(), strict=True)])
    executed = torch.stack([SPEC.action.normalize(a[0]) for a in env.actions]).flatten()
    torch.testing.assert_close(flat, executed[: len(flat)])
    assert lane(store, 0, "critic_action").abs().max() <= 1.5


def test_rewards_and_ends_are_those_of_the_environment() -> None:
    """Sum of rewards and number of ends per lane, with terminations and truncations apart."""
    store, env, _ = collect(ResidualMap(1, 0.5), random_act(1))
    stored = len(lane(store, 1, "reward"))
    assert lane(store, 1, "reward").sum() == sum(step[1][1] for step in env.steps[:stored])
    for column, name in ((2, "terminated"), (3, "truncated")):
        assert lane(store, 1, name).tolist() == [bool(step[column][1]) for step in env.steps[:stored]]


def test_next_context_is_that_of_the_executor() -> None:
    """The position inside a chunk is part of the state: planning again would give another action."""
    store, _, _ = collect(ResidualMap(1, 0.5), random_act(1))
    for index in range(LANES):
        ended = (lane(store, index, "terminated") | lane(store, index, "truncated"))[:-1]
        after, following = lane(store, index, "next_ctx")[:-1], lane(store, index, "ctx")[1:]
        assert torch.equal(after[~ended], following[~ended])
        assert torch.equal(lane(store, index, "next_obs")[:-1][~ended], lane(store, index, "obs")[1:][~ended])


def test_the_last_observation_is_the_real_one() -> None:
    """next_obs of a lane that ended is its last observation, never the one after the reset."""
    store, env, _ = collect(DirectMap(1), random_act(1))
    base = flow_policy(SPEC)
    ended = int(torch.nonzero(lane(store, 0, "terminated") | lane(store, 0, "truncated"))[0])
    final = env.steps[ended][4]["final_obs"]["state"][0]
    newest = base.encoder.normalizer.normalize({"state": final[None]})["state"]
    torch.testing.assert_close(lane(store, 0, "next_obs")[ended][-2:], newest[0])


def test_rlif_reward_is_minus_one_before_an_intervention() -> None:
    """Reward -1 at that step only."""
    store, env, _ = collect(
        ResidualMap(1, 0.5), random_act(1), overrule=True, reward=RewardTransform(before_intervention=-1.0)
    )
    taken = [bool(step[4]["intervened"][0]) for step in env.steps]
    ends = [bool(step[4]["final_mask"][0]) for step in env.steps]
    for i, reward in enumerate(lane(store, 0, "reward")[:-1].tolist()):
        expected = -1.0 if taken[i + 1] and not taken[i] and not ends[i] else float(env.steps[i][1][0])
        assert reward == expected


def test_interventions_are_stored_twice_and_never_chained() -> None:
    """Intervened steps are also stored in the intervention buffer, with a cut after each."""
    action_map = ResidualMap(1, 0.5)
    extra = Replay(300, LANES, widths(action_map))
    store, _, _ = collect(action_map, random_act(1), overrule=True, interventions=extra)
    assert len(extra) == int(lane(store, 0, "demo").sum())
    assert bool(lane(extra, 0, "cut").all())


def test_returns_of_episodes_with_interventions() -> None:
    """A success reached with help is part of the return of every earlier step; intervened steps alone have it
    at the end.
    """
    action_map = ResidualMap(1, 0.5)
    extra = Replay(300, LANES, widths(action_map))
    store, _, _ = collect(action_map, random_act(1), overrule=True, interventions=extra)
    sums = lane(store, 0, "mc_return")
    reward, ended = lane(store, 0, "reward"), lane(store, 0, "terminated") | lane(store, 0, "truncated")
    expected, total = [], torch.nan
    for value, end in zip(reward.tolist()[::-1], ended.tolist()[::-1], strict=True):
        total = value if end else value + 0.9 * total
        expected.append(total)
    torch.testing.assert_close(sums, torch.tensor(expected[::-1]), equal_nan=True)
    assert (sums[lane(store, 0, "demo") > 0] > 0.0).any()
    alone = lane(extra, 0, "mc_return")
    assert torch.equal(alone.isfinite(), lane(extra, 0, "terminated") | lane(extra, 0, "truncated"))


@pytest.mark.parametrize("kind", ["residual", "steered"])
def test_training_executes_the_deployed_policy(kind: str) -> None:
    """The same actor through the collector and through the deployed policy: the same actions, bit for bit."""
    torch.manual_seed(5)
    action_map: Any = ResidualMap(1, 0.5) if kind == "residual" else LatentMap(4, 1, 1.5, "gaussian")
    actor = make_actor(ActorConfig("gaussian", 4 + action_map.ctx_dim, action_map.dim, (8,)))
    torch.nn.init.normal_(actor.net[-1].weight)
    with torch.no_grad():
        _, env, _ = collect(action_map, actor.act)
    base = flow_policy(SPEC)
    policy = (ResidualPolicy if kind == "residual" else SteeredPolicy)(base, actor, action_map)
    executor = ChunkExecutor(policy, LANES, masked=FORM["masked"])
    noise, first = EpisodeNoise((4, 1)), EpisodeSeeds(("collect",))
    with WorkerVecEnv(TargetLane, LANES) as other:
        executor.reset(other.reset(EpisodeSeeds(("collect",))))
        noise.reset(range(LANES), [next(first) for _ in range(LANES)])
        for expected in env.actions:
            action = SPEC.action.denormalize(executor.act(noise))
            assert torch.equal(action, expected)
            obs, _, _, _, info = other.step(action)
            executor.observe(info["final_obs"])
            ended = torch.nonzero(info["final_mask"]).flatten()
            executor.reset(obs, ended)
            noise.reset(ended.tolist(), info["next_seed"][ended].tolist())


MAPS = {
    "direct": DirectMap(1),
    "residual": ResidualMap(1, 0.5),
    "residual of chunks": ResidualMap(1, 0.5, 2),
    "steering": LatentMap(4, 1, 1.5),
    "gaussian steering": LatentMap(4, 1, 1.5, "gaussian"),
}


@pytest.mark.parametrize("name", MAPS)
def test_both_forms_of_selections_store_the_same(name: str) -> None:
    """A GPU computes all lanes and keeps some, the host computes these alone: the same decisions, returns and
    episodes.
    """
    action_map = MAPS[name]

    def act(features: Tensor, ctx: Tensor) -> Tensor:
        return torch.sin(17.0 * features.sum(1, keepdim=True) + torch.arange(action_map.dim))

    (one, _, first), (other, _, second) = (
        collect(action_map, act, masked=masked, overrule=True) for masked in (False, True)
    )
    assert torch.equal(one.head, other.head)
    for key, value in one.data.items():
        torch.testing.assert_close(other.data[key], value, equal_nan=True)
    episodes = first.episodes.drain()
    assert episodes == second.episodes.drain()
    assert len(episodes) > 10
