"""Fine-tuning of fine-tuned policies, and learning from scratch: the base acts as it is deployed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from policies.tuned.fine_tuned import corrects_steps
from policies.tuned.residual import ResidualPolicy
from policies.tuned.steered import SteeredPolicy
from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.replay import Replay
from robo_rl.nets.actor import Actor, ActorConfig, make_actor
from robo_rl.rl.collect import Collector
from sim.vec.workers import WorkerVecEnv
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, TargetLane, widths

LANES, STEPS = 3, 50


def actor(in_dim: int, dim: int, trained: bool = True) -> Actor:
    torch.manual_seed(in_dim)
    made = make_actor(ActorConfig("deterministic", in_dim, dim, (8,)))
    if trained:
        torch.nn.init.normal_(made.net[-1].weight)
    return made


def residual(base: SavedPolicy, trained: bool = True) -> ResidualPolicy:
    return ResidualPolicy(base, actor(5, 1, trained), ResidualMap(1, 0.4))


class Recorder:
    """Environment wrapper that records the actions."""

    def __init__(self) -> None:
        self.env, self.actions = WorkerVecEnv(TargetLane, LANES), list[Tensor]()
        self.spec, self.num_envs, self.metadata = self.env.spec, LANES, self.env.metadata

    def step_async(self, action: Tensor) -> None:
        self.actions.append(action)
        self.env.step_async(action)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


def collected(base: SavedPolicy, action_map: ActionMap, act: Any) -> tuple[Tensor, Replay]:
    env, store = Recorder(), Replay(900, LANES, widths(action_map) | widths_of(base))
    noise = EpisodeNoise((base.chunk, 1))
    collector = Collector(env, ChunkExecutor(base, LANES), noise, action_map, 0.9, store)  # type: ignore[arg-type]
    first = EpisodeSeeds(("stack",))
    collector.reset(env.reset(EpisodeSeeds(("stack",))), [next(first) for _ in range(LANES)])
    for _ in range(STEPS):
        collector.begin(act)
        collector.finish()
    env.close()
    return torch.stack(env.actions), store


def widths_of(base: SavedPolicy) -> dict[str, int]:
    return {"obs": 2 * base.obs_steps, "next_obs": 2 * base.obs_steps}


def deployed(policy: SavedPolicy) -> Tensor:
    """The same episodes with the executor alone."""
    executor, noise, first = (
        ChunkExecutor(policy, LANES),
        EpisodeNoise((policy.chunk, 1)),
        EpisodeSeeds(("stack",)),
    )
    actions = []
    with WorkerVecEnv(TargetLane, LANES) as env:
        executor.reset(env.reset(EpisodeSeeds(("stack",))))
        noise.reset(range(LANES), [next(first) for _ in range(LANES)])
        for _ in range(STEPS):
            actions.append(SPEC.action.denormalize(executor.act(noise)))
            obs, _, _, _, info = env.step(actions[-1])
            executor.observe(info["final_obs"])
            ended = torch.nonzero(info["final_mask"]).flatten()
            executor.reset(obs, ended)
            noise.reset(ended.tolist(), info["next_seed"][ended].tolist())
    return torch.stack(actions)


STACKS: dict[str, tuple[Any, ActionMap, Any]] = {
    "residual on residual": (lambda: residual(flow_policy(SPEC)), ResidualMap(1, 0.2), ResidualPolicy),
    "steering a residual": (
        lambda: residual(flow_policy(SPEC)),
        LatentMap(4, 1, 1.5, "gaussian"),
        SteeredPolicy,
    ),
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("trained", [False, True])
def test_corrections_of_the_base_are_kept(name: str, trained: bool) -> None:
    """Promise 1 for stacks: a base that corrects steps keeps doing so below another policy."""
    build, action_map, kind = STACKS[name]
    on_top = actor(4 + action_map.ctx_dim, action_map.dim, trained)
    trained_actions, _ = collected(build(), action_map, on_top.act)
    assert torch.equal(trained_actions, deployed(kind(build(), on_top, action_map)))
    assert torch.equal(trained_actions, deployed(build())) != trained


def test_the_base_phase_executes_the_base_with_its_corrections() -> None:
    """`act` None: the actions are those of the deployed base."""
    base = residual(flow_policy(SPEC))
    actions, _ = collected(base, ResidualMap(1, 0.2), None)
    assert torch.equal(actions, deployed(base))
    assert not torch.equal(actions, deployed(flow_policy(SPEC)))


def test_correction_in_a_lower_layer_is_detected() -> None:
    """Distillation: a steered residual gives labels only where it acted."""
    assert corrects_steps(residual(flow_policy(SPEC)))
    steered = SteeredPolicy(residual(flow_policy(SPEC)), actor(8, 4), LatentMap(4, 1, 1.5, "gaussian"))
    assert corrects_steps(steered)
    assert not corrects_steps(flow_policy(SPEC))
    assert not corrects_steps(ResidualPolicy(flow_policy(SPEC), actor(6, 2), ResidualMap(1, 0.2, steps=2)))


def test_learning_from_scratch_starts_with_uniform_actions() -> None:
    """RLPD and SAC collect with uniform actions first: all of [-1, 1], mean 0, variance 1/3."""
    actions, store = collected(DirectPolicy(SPEC), DirectMap(1), None)
    unit = SPEC.action.normalize(actions)
    assert unit.abs().max() <= 1.0
    assert abs(unit.mean()) < 0.2
    assert abs(unit.var() - 1 / 3) < 0.08
    torch.testing.assert_close(store.data["action"][0, :40, 0], unit[:40, 0, 0])


def test_wsrl_starts_with_the_loaded_actor() -> None:
    """WSRL warms up with the loaded policy, not with zeros."""
    base = DirectPolicy(SPEC, actor=actor(2, 1))
    actions, _ = collected(base, DirectMap(1), None)
    assert torch.equal(actions, deployed(base))


def test_a_chunk_cut_off_by_the_end_keeps_its_planned_rest() -> None:
    """Critics take entire chunks: one padded with zeros would be another action."""
    action_map = ResidualMap(1, 0.4, steps=2)
    _, store = collected(flow_policy(SPEC), action_map, actor(6, 2).act)
    cut = 0
    for lane in range(LANES):
        rows = slice(0, int(store.head[lane]))
        steps, action = store.data["steps"][lane, rows], store.data["action"][lane, rows]
        assert torch.equal(action, store.data["critic_action"][lane, rows])
        cut += int((steps == 1).sum())
        assert action[steps == 1][:, 1].abs().min() > 0.0 if (steps == 1).any() else True
    assert cut > 0


def test_a_chunk_correction_keeps_the_base_beside_it() -> None:
    """ctx is the base's plan, not the corrected one: with corrections of 0.4 everywhere, it differs by
    0.4.
    """
    _, store = collected(flow_policy(SPEC), ResidualMap(1, 0.4, steps=2), lambda _, ctx: torch.ones_like(ctx))
    for lane in range(LANES):
        rows = slice(0, int(store.head[lane]))
        ctx = store.data["ctx"][lane, rows]
        ended = store.data["terminated"][lane, rows] | store.data["truncated"][lane, rows]
        assert torch.equal(store.data["critic_action"][lane, rows], (ctx + 0.4).clamp(-1.0, 1.0))
        going = ~ended[:-1]
        assert torch.equal(store.data["next_ctx"][lane, rows][:-1][going], ctx[1:][going])
