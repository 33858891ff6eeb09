"""Every method trains a toy task in all phases, from its base on, without reading the device in its loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.device_world import DeviceWorld, first_seeds
from policies.tuned.direct import DirectPolicy
from robo_rl.apps.tuning.compose import build_session
from robo_rl.conf.finetune import ON_POLICY, MethodConfig
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.host_reads import HostReads
from tests.apps.tuning.methods.toy_sessions import LANES, METHODS, WITH_BASE, session, small
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env

READ_EVERY = 20  # control steps between two looks at the results, here
ON_GPU = "cuda"


@pytest.mark.parametrize("name", METHODS)
def test_no_method_reads_the_device_in_its_loop(
    name: str, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the form for a GPU: no read between two looks at the results, no tensor on another device. PPO reads
    once per rollout.
    """
    monkeypatch.setattr("robo_rl.rl.collect.READ_EVERY", READ_EVERY)
    config = small(name, "method.utd=0.4")
    human = config.intervene != "none"
    env = DeviceWorld(LANES, intervened=human)
    base = DirectPolicy(SPEC).eval() if config.map.kind == "direct" else flow_policy(SPEC)
    built = build_session(
        config, base, env, seed=0, demos=demos if config.mix.demo > 0.0 else None, masked=True
    )
    tuner: Any = built.tuner
    tuner.collector.reset(env.reset(EpisodeSeeds(built.seed_root)), first_seeds(built.seed_root, LANES))
    while tuner.phase != "online" or tuner.env_steps % (READ_EVERY * LANES):
        tuner.advance()
    tuner.advance()
    with HostReads().watching() as found:
        for _ in range(READ_EVERY - 2):
            if config.algorithm in ON_POLICY:  # `advance` learns at the end of a rollout
                tuner.collector.begin(tuner._explore)
                tuner.collector.finish()
            else:
                tuner.advance()
    assert not found.reads, dict(found.reads)
    assert not found.strays, dict(found.strays)


@pytest.mark.parametrize("name", ["dsrl_na", "qc", "idql", "expo", "fql"])
def test_demonstrations_are_replayed_if_they_are_given(name: str, demos: EpisodeStore) -> None:
    """Half of each batch is of them; without any the method is the one of mix.demo=0 mix.online=1."""
    alone = small(name, "method.mix.demo=0", "method.mix.online=1")
    built = []
    for config, given in ((small(name), demos), (small(name), None), (alone, demos)):
        env = make_env(LANES)
        built.append(build_session(config, flow_policy(SPEC), env, seed=0, demos=given).tuner)
        env.close()
    shown, without, same = (tuner.mix for tuner in built)
    assert shown.fractions == {"online": 0.5, "demo": 0.5}
    assert len(shown["demo"]) == 2 * 3
    assert without.fractions == same.fractions == {"online": 1.0}
    assert without.stores.keys() == same.stores.keys() == {"online"}


def trained_on_gpu(config: MethodConfig, demos: EpisodeStore | None = None) -> Any:
    """The tuner after all phases on the GPU."""
    env = DeviceWorld(LANES, device=ON_GPU)
    base = (DirectPolicy(SPEC) if config.map.kind == "direct" else flow_policy(SPEC)).eval().to(ON_GPU)
    built = build_session(config, base, env, seed=0, demos=demos, device=ON_GPU, masked=True)
    tuner: Any = built.tuner
    tuner.collector.reset(env.reset(EpisodeSeeds(built.seed_root)), first_seeds(built.seed_root, LANES))
    while not tuner.done:
        tuner.advance()
    assert tuner.learner.updates >= 100
    return tuner


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fast_residual", "residual", "rlpd"])
def test_methods_with_demonstrations_train_on_a_gpu(name: str, demos: EpisodeStore) -> None:
    """All phases on the GPU, with updates as graphs and demonstrations in the replay."""
    config = small(name, "method.utd=0.4", "method.env_steps=600")
    tuner = trained_on_gpu(config, demos)
    assert all(torch.isfinite(value).all() for value in tuner.learner.actor.state_dict().values())
    assert tuner.mix["demo"].head.device.type == ON_GPU


@pytest.mark.parametrize("name", METHODS)
def test_method_trains_end_to_end(name: str, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """All phases of every method in small: weights change, stay finite, and the deployed policy acts."""
    built, env, base = session(small(name), demos, monkeypatch)
    tuner = built.tuner
    learned = [tuner.learner.actor]
    if small(name).map.kind == "candidates":  # by critics; some methods have no use for an actor
        learned.append(tuner.learner.critic)
    before = [value.clone() for net in learned for value in net.state_dict().values()]
    while not tuner.done:
        tuner.advance()
    env.close()
    assert tuner.learner.updates >= 2
    after = [value for net in learned for value in net.state_dict().values()]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    obs = {"state": torch.rand(5, base.obs_steps, 2)}
    chunk = built.policy.refine(obs, built.policy.sample(obs, torch.randn(5, base.chunk, 1))[:, 0])
    assert torch.isfinite(chunk).all()
    assert chunk.abs().max() <= 1.0


@pytest.mark.parametrize("name", [name for name in WITH_BASE if name != "resip"])
def test_method_starts_as_its_base(name: str, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 0 equals the base bit for bit, at zero noise for origin zero."""
    built, env, base = session(small(name), demos, monkeypatch)
    env.close()
    obs, noise = {"state": torch.rand(5, base.obs_steps, 2)}, torch.randn(5, base.chunk, 1)
    start = torch.zeros_like(noise) if getattr(built.tuner.learner.map, "origin", "") == "zero" else noise
    assert torch.equal(built.policy.sample(obs, noise), base.sample(obs, start))


def test_a_residual_may_have_deep_networks(demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """BroNet in residual and critics: it starts as its base, bit for bit, and learns in all phases."""
    words = ["network=bronet", "critic_loss=quantile", "target_reduce=mean", "reward_scaling=deviation"]
    built, env, base = session(
        small("residual", *(f"method.learner.{word}" for word in words)), demos, monkeypatch
    )
    obs, noise = {"state": torch.rand(5, base.obs_steps, 2)}, torch.randn(5, base.chunk, 1)
    first = base.sample(obs, noise)
    assert torch.equal(built.policy.refine(obs, first[:, 0]), first[:, 0])
    while not built.tuner.done:
        built.tuner.advance()
    env.close()
    assert torch.isfinite(built.policy.refine(obs, first[:, 0])).all()
    assert not torch.equal(built.policy.refine(obs, first[:, 0]), first[:, 0])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["bro", "simba_v2", "xqc"])
def test_deep_critics_train_on_a_gpu(name: str) -> None:
    """Updates as graphs, a reset between them, and statistics on the device."""
    resets = "[500]" if name == "bro" else "[]"
    config = small(name, "method.utd=0.4", "method.env_steps=900", f"method.resets={resets}")
    tuner = trained_on_gpu(config)
    assert tuner.resets_done == len(config.resets)
    assert all(torch.isfinite(value).all() for value in tuner.learner.actor.state_dict().values())
