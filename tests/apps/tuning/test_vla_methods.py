"""Fine-tuning of a vision-language-action policy: it starts as its base, the prefix is encoded once per
decision, and a run resumes exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.tuned.residual import ResidualPolicy
from policies.vla.packed import PackedPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.apps.tuning.maps import build_map, check_together
from robo_rl.apps.tuning.start import with_planning_interval
from robo_rl.apps.tuning.stores import stored_base
from robo_rl.conf.finetune import MapConfig, MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.protocols import reads_every_step
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.eval.rollout import EvalResult, eval_seeds, evaluate
from robo_rl.rl.collect import Collector
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.mix import MixConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from tests.policies.small_vla import SPEC, TA, TP, SidesLane, drawn, seen, sides_env, small_vla, token_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")


def method(kind: str, algorithm: str = "off_policy", **options: Any) -> MethodConfig:
    """24 steps of the base, then 24 of learning, in three lanes."""
    where = {name: options.pop(name) for name in list(options) if name in MapConfig.__dataclass_fields__}
    learner: Any = {"hidden": [16]} | ({} if algorithm == "denoising" else {"batch": 8}) | options
    return MethodConfig(
        env_steps=48, base_steps=24, burn_in=0, replay_capacity=60, learner=LearnerConfig(**learner),
        map=MapConfig(kind=kind, **where), algorithm=algorithm, name=kind, guard_window=0,
    )  # fmt: skip


def denoising(**settings: Any) -> MethodConfig:
    ppo = PpoConfig(rollout=8, epochs=1, minibatches=2, warmup=0)
    return replace(method("chain", "denoising"), base_steps=0, ppo=ppo, denoising=DenoisingConfig(**settings))


TOKENS = "PPO on tokens"
METHODS = {
    "residual": method("residual", actor="deterministic", gate=True),
    "residual of chunks": method("residual", per_chunk=True),
    "steering": method("steering"),
    "DSRL-NA": method("steering", "noise_aliased"),
    "DPPO": denoising(level=0.7, first_clip=0.001, discount=0.9),
    "Flow-SDE": denoising(level=0.7, random_step="decision"),
    "Flow-Noise": denoising(noise_range=[0.1, 0.3], ratio="chain"),
    TOKENS: replace(
        denoising(ratio="chain", reduce="sum", temperature=1.5), map=MapConfig(kind="tokens"), name="tokens"
    ),
}


def base_of(name: str, memory: int = 0) -> VlaPolicy:
    return token_vla(memory=memory) if name == TOKENS else small_vla(memory=memory)


def by_experts() -> VlaPolicy:
    """A policy with an action expert for each dimension of the action."""
    return small_vla(experts=[[1], [0]])


@contextmanager
def session(name: str, base: VlaPolicy) -> Iterator[tuple[TuningSession, Any]]:
    with closing(sides_env()) as env:
        made = build_session(METHODS[name], base, env, seed=0, demos=None, say=lambda _: None)
        yield made, env


def begin(made: TuningSession, env: Any) -> EpisodeSeeds:
    seeds, first = EpisodeSeeds(made.seed_root), EpisodeSeeds(made.seed_root)
    assert isinstance(made.tuner.collector, Collector)
    made.tuner.collector.reset(env.reset(seeds), [next(first) for _ in range(3)])
    return seeds


def measured(policy: Any, noise: float) -> EvalResult:
    with closing(sides_env()) as env:
        return evaluate(env, policy, ChunkExecutor, EpisodeNoise((TP, 2), noise), eval_seeds(0, 6))


@torch.no_grad()
@pytest.mark.parametrize("name", METHODS)
def test_the_start_is_the_base_bit_for_bit(name: str) -> None:
    """Promise 1, for single chunks and for entire episodes."""
    base, obs = base_of(name), seen("right", "go to the left side")
    with session(name, base) as (made, _):
        steered = METHODS[name].map.kind == "steering"
        noise = torch.zeros_like(drawn(2)) if steered else drawn(2)
        assert torch.equal(made.policy.sample(obs, noise), base.sample(obs, noise))
        chunk = base.sample(obs, noise)[:, 0]
        assert torch.equal(made.policy.refine(obs, chunk), chunk)
        result, own = (
            measured(made.policy, made.noise_scale),
            measured(base, 0.0 if steered else made.noise_scale),
        )
        assert (result.length, result.returns) == (own.length, own.returns)


@pytest.mark.parametrize("name", METHODS)
def test_the_prefix_is_encoded_once_per_decision(name: str) -> None:
    """Plan and features share it, and updates encode nothing. An ended episode needs one of its last
    observation.
    """
    base, rows = base_of(name), list[int]()
    with session(name, base) as (made, env):
        begin(made, env)
        base.backbone.register_forward_hook(lambda net, given, out: rows.append(len(out[2])))
        collector: Any = made.tuner.collector
        plain, opened, ended = collector._open, list[int](), 0

        def counted(lanes: Any, *rest: Any) -> None:
            opened.append(len(lanes))
            plain(lanes, *rest)

        collector._open = counted
        while not made.tuner.done:
            ended += len(made.tuner.advance())
        again = collector.map.timescale == "step"  # of a lane whose queue was empty when its episode ended
        extra = sum(rows) - sum(opened) - ended
        assert 0 <= extra <= (ended if again else 0)


@pytest.mark.parametrize(
    ("name", "memory"), [*((name, 0) for name in METHODS), ("steering", 2), ("residual", 2)]
)
def test_a_stopped_run_equals_an_unstopped_one(name: str, memory: int, tmp_path: Path) -> None:
    """Promise 7, through files, in the middle of a chunk; a memory of decisions is part of the state."""
    weights = []
    for stop in (False, True):
        base = base_of(name, memory)
        with session(name, base) as (made, env):
            seeds = begin(made, env)
            for _ in range(11):
                made.tuner.advance()
            if not stop:
                while not made.tuner.done:
                    made.tuner.advance()
                weights.append(made.tuner.learner.weights())
                continue
            save_state(tmp_path / "state", {"tuner": made.tuner.state_dict(), "env": env.snapshot()})
        with session(name, base_of(name, memory)) as (made, env):
            state = load_state(tmp_path / "state")
            env.restore(state["env"], EpisodeSeeds(seeds.root, seeds.count))
            made.tuner.load_state_dict(state["tuner"])
            while not made.tuner.done:
                made.tuner.advance()
            weights.append(made.tuner.learner.weights())
    for part, tensors in weights[0].items():
        for key, value in tensors.items():
            assert torch.equal(value, weights[1][part][key]), (part, key)


@pytest.mark.parametrize("name", ["DSRL-NA", "Flow-SDE", TOKENS])
def test_methods_that_store_prefixes_refuse_a_memory(name: str) -> None:
    """Also before the run folder is made."""
    base, config = base_of(name, 2), METHODS[name]
    with pytest.raises(ConfigError, match=r"policy\.memory.* Use method=steering or residual"):
        session(name, base).__enter__()
    with pytest.raises(ConfigError, match=r"policy\.memory.* Use method=steering or residual"):
        check_together(config, build_map(config.map, base), base)


def test_a_head_needs_a_generative_policy() -> None:
    """A vision-language-action policy comes from robo-rl train as well, so the message names the kind."""
    with pytest.raises(ConfigError, match=r"policy=generative, found one of kind 'vla'\. Choose"):
        build_map(MapConfig(kind="head"), small_vla())


@torch.no_grad()
def test_a_residual_is_deployed_with_the_features_that_it_was_trained_with() -> None:
    """A memory holds the decisions of earlier observations, in the steps of a new plan too."""
    trained, deployed_ = list[torch.Tensor](), list[torch.Tensor]()
    with session("residual", small_vla(memory=2)) as (made, env):
        begin(made, env)
        collector: Any = made.tuner.collector
        see = collector.observations.see

        def recorded(lanes: Any) -> Any:
            seen_now = see(lanes)
            if lanes.every:
                trained.append(seen_now.features)
            return seen_now

        collector.observations.see = recorded
        for _ in range(6):
            collector.begin(None)
            collector.finish()
        policy: Any = made.policy
    act = policy.actor.act
    policy.actor.act = lambda features, base: deployed_.append(features) or act(features, base)
    with closing(sides_env()) as env:
        executor, noise = ChunkExecutor(policy, 3), EpisodeNoise((TP, 2), made.noise_scale)
        seeds, first = EpisodeSeeds(made.seed_root), EpisodeSeeds(made.seed_root)
        executor.reset(env.reset(seeds))
        noise.reset(range(3), [next(first) for _ in range(3)])
        for _ in range(6):
            obs, *_, info = env.step(env.spec.action.denormalize(executor.act(noise)))
            executor.observe(info["final_obs"])
            ended = torch.nonzero(info["final_mask"]).flatten()
            executor.reset(obs, ended)
            noise.reset(ended.tolist(), info["next_seed"][ended].tolist())
    assert len(trained) == len(deployed_) == 6
    for ours, theirs in zip(trained, deployed_, strict=True):
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
@pytest.mark.parametrize("name", ["steering", "DSRL-NA", "residual"])
@pytest.mark.parametrize("make", [token_vla, by_experts], ids=["tokens", "experts"])
def test_other_heads_are_steered_and_corrected(name: str, make: Callable[[], VlaPolicy]) -> None:
    """Learners beside the base need its noise port alone; the start is the base."""
    base, obs = make(), seen("right", "go to the left side")
    with session(name, base) as (made, env):
        begin(made, env)
        noise = torch.zeros_like(drawn(2)) if METHODS[name].map.kind == "steering" else drawn(2)
        assert torch.equal(made.policy.sample(obs, noise), base.sample(obs, noise))
        with torch.enable_grad():
            while not made.tuner.done:
                made.tuner.advance()
        assert made.tuner.learner.updates > 0


@torch.no_grad()
def test_a_choice_among_candidates_remembers() -> None:
    """The policy of qc, idql and expo is evaluated with the memory of its base."""
    base = small_vla(memory=2)
    with closing(sides_env()) as env:
        chosen = replace(method("candidates", candidates=3), base_noise=0.0)
        made = build_session(chosen, base, env, seed=0, demos=None, say=lambda _: None)
    assert measured(made.policy, 0.0).length == measured(base, 0.0).length


def test_decisions_stay_as_far_apart_as_they_are_remembered() -> None:
    with pytest.raises(ConfigError, match=r"decisions that are 2 steps apart. Set method\.execute=null"):
        with_planning_interval(small_vla(memory=2), 1)


@pytest.mark.parametrize(
    ("name", "parts"),
    [("DPPO", False), ("DPPO", True), ("Flow-SDE", False), ("Flow-SDE", True), ("Flow-Noise", False),
     (TOKENS, False)],
)  # fmt: skip
def test_denoising_learns_the_expert_alone_from_ratio_one(name: str, parts: bool) -> None:
    """Promise 3: the first minibatch has the log-probabilities of acting. Prefix and base do not change.
    parts: with an expert for each dimension of the action.
    """
    base = by_experts() if parts else base_of(name)
    before = {key: value.clone() for key, value in base.state_dict().items()}
    with session(name, base) as (made, env):
        begin(made, env)
        tuner: Any = made.tuner
        assert made.policy.backbone is base.backbone  # type: ignore[attr-defined]
        ratios, plain = list[torch.Tensor](), tuner.learner._evaluate
        old: Any = None

        def evaluated(x: torch.Tensor, u: torch.Tensor, rows: torch.Tensor) -> Any:
            nonlocal old
            terms = plain(x, u, rows)
            if not torch.is_grad_enabled():  # of all terms, in order, before the first minibatch
                old = terms.log_prob
            else:
                ratios.append((terms.log_prob.detach() - old[rows]).exp())
            return terms

        tuner.learner._evaluate = evaluated
        while not tuner.done:
            tuner.advance()
        torch.testing.assert_close(ratios[0], torch.ones_like(ratios[0]), rtol=0.0, atol=2e-5)
        assert tuner.learner.updates > 0
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    changed = {
        key.split(".")[0] for key, value in made.policy.state_dict().items()  # type: ignore[attr-defined]
        if not torch.equal(value, before[key])
    }  # fmt: skip
    assert changed == {"net"}


@torch.no_grad()
def test_packed_features_hold_the_whole_condition() -> None:
    """Chunks from a row equal those from the observation; critics see the pooled columns."""
    base, obs = small_vla(), seen("right", "go to the left side")
    packed = PackedPolicy(base, 20)
    rows = packed.features(obs)
    assert rows.shape == (2, packed.layout.width)
    assert torch.equal(rows[:, packed.views.critic], base.features(obs))
    torch.testing.assert_close(packed.sample_from(rows, drawn(2)), base.sample(obs, drawn(2)))
    alone = packed.features({key: value[:1] for key, value in obs.items()})  # shorter, so padded further
    torch.testing.assert_close(packed.sample_from(alone, drawn(2)[:1]), base.sample(obs, drawn(2))[:1])
    with pytest.raises(ConfigError, match="instruction is longer"):
        packed.features(seen("x " * 11))


def test_only_methods_that_sample_from_stored_decisions_store_the_prefix() -> None:
    base = small_vla()
    stored = {
        name for name, made in METHODS.items() if isinstance(stored_base(made, base, "robot/x"), PackedPolicy)
    }
    assert stored == {"DSRL-NA", "DPPO", "Flow-SDE", "Flow-Noise", TOKENS}


@pytest.mark.parametrize("kind", ["steering", "candidates"])
def test_demonstrated_chunks_are_stored_as_collected_ones(kind: str, tmp_path: Path) -> None:
    """Four steps in chunks of two, with prefixes for DSRL-NA: each of the five rows of features that appear
    is that of its observation, and learning goes on to the end.
    """
    writer, lane = DatasetWriter.create(tmp_path / "data", SPEC), SidesLane()
    with writer.episode(task="right", seed=1) as episode:
        obs = [lane.reset(1)]
        for _ in range(4):
            episode.add(obs[-1], np.array([1.0, 0.0], np.float32), reward=0.0)
            obs.append(lane.step(np.array([1.0, 0.0], np.float32))[0])
        episode.commit(success=True, final_obs=obs[-1])
    base, algorithm = small_vla(), "noise_aliased" if kind == "steering" else "off_policy"
    config = replace(method(kind, algorithm, candidates=3), mix=MixConfig(online=0.5, demo=0.5))
    said = list[str]()
    with closing(sides_env()) as env:
        made = build_session(
            config, base, env, seed=0, demos=EpisodeStore(tmp_path / "data"), say=said.append
        )
        begin(made, env)
        acting: Any = made.tuner.collector.base.executor.policy
        seen_there = {key: torch.from_numpy(np.stack([each[key] for each in obs]))[:, None] for key in obs[0]}
        rows = acting.features(seen_there)
        stored = made.tuner.mix["demo"].data
        torch.testing.assert_close(stored["obs"][0], rows[[0, 2, 1, 3]])
        torch.testing.assert_close(stored["next_obs"][0], rows[[2, 4, 3, 4]])
        while not made.tuner.done:
            made.tuner.advance()
    assert isinstance(acting, PackedPolicy) is (kind == "steering")
    assert any("and 4 demonstrated ones" in each for each in said) is (kind == "steering")


def test_pictures_that_no_plan_reads_are_not_drawn() -> None:
    """Packed features are read when a plan is made, as the policy's are: drawing is most of the work."""
    base = token_vla()
    assert reads_every_step(PackedPolicy(base)) is reads_every_step(base) is False
    residual = deployed_residual(base)
    assert reads_every_step(PackedPolicy(residual)) is reads_every_step(residual) is True


def deployed_residual(base: VlaPolicy) -> ResidualPolicy:
    """The base with a residual of every step."""
    with session("residual", base) as (made, _):
        assert isinstance(made.policy, ResidualPolicy)
        return made.policy


def test_a_new_planning_interval_shares_the_weights() -> None:
    base = small_vla()
    finer = with_planning_interval(base, 1)
    assert (finer.execute, base.execute) == (1, TA)
    assert finer.backbone is base.backbone  # type: ignore[attr-defined]
