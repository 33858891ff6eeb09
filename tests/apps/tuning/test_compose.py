"""Composition: every kind of method starts as its base, resumes exactly, and mismatches are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from policies.tuned.residual import ResidualPolicy
from policies.tuned.steered import SteeredPolicy
from robo_rl.apps.tuning import compose
from robo_rl.apps.tuning.compose import TuningSession, build_map, build_session
from robo_rl.apps.tuning.maps import ignores_noise
from robo_rl.conf.finetune import MapConfig
from robo_rl.core.action_map import LatentMap, ResidualMap
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.rollout import eval_seeds, evaluate
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.rl.loop import FineTuner
from tests.apps.tuning.small_methods import (
    DEMOS,
    METHODS,
    base_of,
    begin,
    dataset,
    method,
    repeat_of,
    session,
)
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """Two successes and a failure of the toy world."""
    return dataset(tmp_path_factory.mktemp("demos"), SPEC, [True, False, True])


class Log(list[tuple[int, dict[str, float]]]):
    def log(self, step: int, values: Any) -> None:
        self.append((step, {name: float(value) for name, value in values.items()}))


def advance(tuner: Any) -> None:
    """One step, or two updates: the burn-in has three pieces."""
    if isinstance(tuner, FineTuner):
        tuner.advance(2)
    else:
        tuner.advance()


def to_the_end(made: TuningSession) -> None:
    while not made.tuner.done:
        advance(made.tuner)


RESUMED = METHODS | {
    "FQL": method("head", DEMOS),
    "draws and edits": method("candidates", candidates=3, edit=0.3),
}


@pytest.mark.parametrize("name", RESUMED)
def test_every_method_resumes_exactly(name: str, demos: EpisodeStore, tmp_path: Path) -> None:
    """Promise 7: stopped before, during and after the burn-in, through files; weights, replay and log are
    equal bit for bit.
    """
    config, whole_log = RESUMED[name], Log()
    whole, env = session(config, demos, whole_log)
    begin(whole, env)
    to_the_end(whole)
    env.close()
    for stop_at, burned_in in ((24, 0), (48, 0), (48, min(2, config.burn_in)), (75, 0)):
        log = Log()
        first, env = session(config, demos, log)
        seeds = begin(first, env)
        while first.tuner.env_steps < stop_at or first.tuner.burned_in < burned_in:
            advance(first.tuner)
        save_state(tmp_path, {"tuner": first.tuner.state_dict(), "env": env.snapshot(), "seeds": seeds.count})
        env.close()
        state = load_state(tmp_path)
        second, env = session(config, demos, log)
        env.restore(state["env"], EpisodeSeeds(second.seed_root, int(state["seeds"]), repeat_of(second)))
        second.tuner.load_state_dict(state["tuner"])
        to_the_end(second)
        env.close()
        assert log == whole_log
        same_tuner(whole.tuner, second.tuner)


@pytest.mark.parametrize("name", ["SAC", "ResFiT", "residual of chunks"])
def test_a_replay_that_fits_the_run_changes_nothing(
    name: str, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three lanes make 32 steps each, so 33 decisions of each are kept, not 100; the weights are equal. A
    checkpoint with a larger replay, as older versions wrote, goes on in the smaller one.
    """
    config = METHODS[name]
    fitting, env = session(config, demos)
    begin(fitting, env)
    to_the_end(fitting)
    monkeypatch.setattr(compose, "with_fitting_replay", lambda method, lanes: method)
    large, other = session(config, demos)
    begin(large, other)
    to_the_end(large)
    kept, whole = (made.tuner.mix["online"] for made in (fitting, large))  # type: ignore[union-attr]
    assert (kept.slots, whole.slots) == (33, 100)
    assert int(kept.head.max()) <= 32
    for part, weights in large.tuner.learner.weights().items():
        for key, value in weights.items():
            assert torch.equal(value, fitting.tuner.learner.weights()[part][key]), (part, key)
    kept.load_state_dict(whole.state_dict())
    assert torch.equal(kept.data["action"][:, :32], whole.data["action"][:, :32])
    env.close()
    other.close()


def test_a_replay_that_cannot_be_allocated_names_its_size(demos: EpisodeStore) -> None:
    """4e13 decisions need more than the address space of any machine."""
    config = replace(METHODS["SAC"], env_steps=40 * 10**12, replay_capacity=40 * 10**12)
    with pytest.raises(
        ConfigError, match=r"needs .* GB of memory for 40000000000000 steps of this obs"
    ) as said:
        session(config, demos)
    assert "Set method.replay_capacity=" in str(said.value)


def same_tuner(one: Any, other: Any) -> None:
    for name, weights in one.learner.weights().items():
        for key, value in weights.items():
            assert torch.equal(value, other.learner.weights()[name][key]), (name, key)
    for name, store in stores_of(one).items():
        for key, value in store.data.items():
            found = stores_of(other)[name].data[key]
            assert torch.equal(value.nan_to_num(-9.0), found.nan_to_num(-9.0)), (name, key)


def stores_of(tuner: Any) -> dict[str, Any]:
    """Replay buffers; of PPO the rollout, whose rows beyond `count` are of no use and not restored."""
    if isinstance(tuner, FineTuner):
        return dict(tuner.mix.stores)
    assert tuner.groups.size or not tuner.rollout.count.any()
    return {}


@pytest.mark.parametrize("name", [name for name, config in METHODS.items() if config.map.kind != "direct"])
def test_evaluation_at_step_zero_equals_the_base(name: str, demos: EpisodeStore) -> None:
    """Promise 1: same successes and lengths on the same seeds; at zero noise for steering with origin
    zero.
    """
    config = METHODS[name]
    made, env = session(config, demos)
    still = config.map.kind == "steering" and config.map.origin == "zero"
    results = [
        evaluate(env, policy, ChunkExecutor, EpisodeNoise((4, 1), scale), eval_seeds(0, 12))
        for policy, scale in ((made.policy, made.noise_scale), (flow_policy(SPEC), 0.0 if still else 1.0))
    ]
    env.close()
    assert results[0].success == results[1].success
    assert results[0].length == results[1].length


def test_denoising_trains_a_copy_and_samples_no_other_plan(demos: EpisodeStore) -> None:
    """The base stays as it is, the policy shares the learner's weights, and no chunk is sampled in vain."""
    base, config = flow_policy(SPEC), METHODS["DPPO"]
    before = {key: value.clone() for key, value in base.state_dict().items()}
    env = make_env(3)
    made = build_session(config, base, env, seed=0, demos=None, say=lambda _: None)
    made.tuner.collector.base.executor.plan = None  # type: ignore[assignment]
    begin(made, env)
    to_the_end(made)
    env.close()
    assert made.tuner.learner.updates == 4 * 2 * 2
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    tuned = made.policy.net.state_dict()  # type: ignore[attr-defined]
    actor = made.tuner.learner.actor.state_dict()
    assert all(torch.equal(actor[f"net.{key}"], value) for key, value in tuned.items())
    assert any(not torch.equal(value, before[f"net.{key}"]) for key, value in tuned.items())


@pytest.mark.parametrize("kind", ["steering", "residual"])
def test_chains_and_their_learner_belong_together(kind: str) -> None:
    """A chain has no SAC, and an actor has no denoising."""
    for config in (method("chain"), method(kind, algorithm="denoising")):
        with pytest.raises(ConfigError, match="does not fit"):
            build_session(config, flow_policy(SPEC), make_env(1), seed=0, demos=None)


def test_residual_learns_with_noise_and_is_deployed_without() -> None:
    """deploy_noise is the policy's, base_noise the collector's: at step 0 it is the zero-noise base, bit for
    bit.
    """
    config = replace(METHODS["residual of chunks"], deploy_noise=0.0)
    made, env = session(config, None)  # type: ignore[arg-type]
    assert (made.noise_scale, made.tuner.collector.base.noise.scale) == (0.0, 1.0)  # type: ignore[attr-defined]
    results = [
        evaluate(env, policy, ChunkExecutor, EpisodeNoise((4, 1), 0.0), eval_seeds(0, 12))
        for policy in (made.policy, flow_policy(SPEC))
    ]
    env.close()
    assert (results[0].success, results[0].length) == (results[1].success, results[1].length)


def test_policy_shares_the_weights_of_the_learner(demos: EpisodeStore) -> None:
    """Evaluations during training use the learner's weights without a copy."""
    made, env = session(METHODS["gated residual"], demos)
    env.close()
    assert isinstance(made.tuner, FineTuner)
    assert isinstance(made.policy, ResidualPolicy)
    assert made.policy.actor is made.tuner.learner.actor
    assert made.policy.gate is made.tuner.learner.critic


def test_exploration_by_lane_needs_decisions_at_every_step(demos: EpisodeStore) -> None:
    """With chunks, only lanes that are due decide: rows of noise would belong to changing lanes."""
    by_lane = [
        ("deterministic", {"explore_correlation": 0.95}),
        ("deterministic", {"explore_min_scale": 0.0}),
    ]
    for actor, change in [*by_lane, ("gaussian", {"explore_correlation": 0.95})]:
        config = method("residual", DEMOS, actor=actor, per_chunk=True, **change)
        with pytest.raises(ConfigError, match="explore_correlation=0"):
            session(config, demos)


@pytest.mark.parametrize("kind", ["steering", "direct"])
def test_gate_without_a_residual_is_refused(kind: str) -> None:
    """A residual is saved with its critics; other policies would use a gate in training only."""
    config = method(kind, gate=True)
    with pytest.raises(ConfigError, match="gate=false"):
        build_session(config, base_of(config), make_env(1), seed=0, demos=None)


def test_base_is_unchanged(demos: EpisodeStore) -> None:
    """The base is unchanged bit for bit after training: a residual needs a fixed base."""
    made, env = session(METHODS["ResFiT"], demos)
    base = made.policy.base  # type: ignore[attr-defined]
    before = {key: value.clone() for key, value in base.state_dict().items()}
    begin(made, env)
    to_the_end(made)
    env.close()
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    assert not any(parameter.requires_grad for parameter in base.parameters())


def steered(origin: str) -> SteeredPolicy:
    action_map = LatentMap(4, 1, 1.5, origin)  # type: ignore[arg-type]
    return SteeredPolicy(
        flow_policy(SPEC), make_actor(ActorConfig("gaussian", 4 + action_map.ctx_dim, 4)), action_map
    )


def residual(base: SavedPolicy) -> ResidualPolicy:
    return ResidualPolicy(base, make_actor(ActorConfig("deterministic", 5, 1)), ResidualMap(1, 0.2))


def test_ignored_noise_is_detected_in_any_layer() -> None:
    """Steering such a policy again, or distilling it with noise, would have no effect."""
    assert ignores_noise(steered("zero"))
    assert ignores_noise(residual(steered("zero")))
    assert not ignores_noise(residual(steered("gaussian")))
    assert not ignores_noise(flow_policy(SPEC))


@pytest.mark.parametrize(
    ("config", "base", "words"),
    [
        (MapConfig("steering"), lambda: DirectPolicy(SPEC), "nothing here draws any"),
        (MapConfig("residual"), lambda: DirectPolicy(SPEC), "needs a base"),
        (MapConfig("steering"), lambda: steered("zero"), "ignores it"),
        (MapConfig("chain"), lambda: steered("gaussian"), "of kind 'steered'"),
        (MapConfig("residual", per_chunk=True), lambda: residual(flow_policy(SPEC)), "per_chunk=false"),
        (MapConfig("direct"), lambda: flow_policy(SPEC), "kind 'generative'"),
        (MapConfig("steering", rank=5), lambda: flow_policy(SPEC), "rank"),
        (MapConfig("residual", scale=2.0), lambda: flow_policy(SPEC), "scale"),
        (MapConfig("steering", magnitude=0.0), lambda: flow_policy(SPEC), "magnitude"),
    ],
)
def test_mismatched_maps_are_refused(config: MapConfig, base: Callable[[], SavedPolicy], words: str) -> None:
    """One sentence each, before a simulator is started."""
    with pytest.raises(ConfigError, match=words):
        build_map(config, base())


def test_a_base_that_corrects_steps_has_no_critics_of_its_chunks() -> None:
    """They would compare executed actions with a plan that is never executed as it is."""
    config = method("steering", algorithm="noise_aliased")
    with pytest.raises(ConfigError, match=r"corrects every step itself.* method=dsrl_sac"):
        build_session(config, residual(flow_policy(SPEC)), make_env(1), seed=0, demos=None)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("head", {"burn_in": 0}, "burn_in above 0"),
        ("head", {"ramp_steps": 10}, r"ramp_steps=0"),
        ("head", {"warmup_noise": 0.5}, r"warmup_noise=0"),
        ("head", {"takeover": 0.5}, r"takeover=0"),
        ("direct", {"ramp_steps": 60}, r"no base that could act first.*ramp_steps=0"),
    ],
)
def test_phases_that_need_another_map_are_refused(kind: str, changes: dict[str, Any], words: str) -> None:
    """u = 0 is the base of a residual, not of a head or of a policy from scratch."""
    config = method(kind)
    with pytest.raises(ConfigError, match=words):
        build_session(replace(config, **changes), base_of(config), make_env(1), seed=0, demos=None)


def test_reduction_over_critics_is_refused_where_targets_are_of_a_value() -> None:
    """IQL's targets are of V; the burn-in by temporal differences alone has targets of critics."""
    config = method("candidates", expectile=0.7, target_reduce="mean")
    with pytest.raises(ConfigError, match=r"no use for method\.learner\.target_reduce=mean"):
        build_session(config, flow_policy(SPEC), make_env(1), seed=0, demos=None)
    build_session(replace(config, burn_in_target="td"), flow_policy(SPEC), make_env(1), seed=0, demos=None)


def test_missing_or_mismatched_demonstrations_are_refused(tmp_path: Path) -> None:
    """Recordings of another robot have another state or other action limits; failures are not used."""
    env = make_env(1)
    config = METHODS["ResFiT"]
    wide = EnvSpec("toy/target", {"state": ArraySpec((3,))}, SPEC.action, 6, 50.0)
    strong = EnvSpec("toy/target", SPEC.obs, ActionSpec((-9.0,), (9.0,)), 6, 50.0)
    cases: list[tuple[EpisodeStore | None, type[Exception], str]] = [
        (None, ConfigError, "demos=<dataset>"),
        (dataset(tmp_path / "wide", wide, [True]), CheckpointError, "'state'"),
        (dataset(tmp_path / "strong", strong, [True]), CheckpointError, "limits"),
        (dataset(tmp_path / "failed", SPEC, [False]), ConfigError, "None of the 1"),
    ]
    for given, error, words in cases:
        with pytest.raises(error, match=words):
            build_session(config, flow_policy(SPEC), env, seed=0, demos=given)
    env.close()


def test_steering_with_demonstrations_is_refused(demos: EpisodeStore) -> None:
    """The noise behind a human's action is unknown."""
    with pytest.raises(ConfigError, match=r"mix\.demo=0"):
        session(method("steering", DEMOS), demos)


def test_aliasing_without_steering_is_refused(demos: EpisodeStore) -> None:
    """An invalid combination of map and algorithm."""
    with pytest.raises(ConfigError, match="steering"):
        session(method("residual", algorithm="noise_aliased"), demos)
