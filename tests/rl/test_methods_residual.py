"""Properties of residual methods besides their settings: ResFiT, DAWN, Policy Decorator, a ramp."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.tuned.residual import ResidualPolicy
from robo_rl.apps.tuning.compose import deployed
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import generator
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.policies.small import flow_policy
from tests.rl.tuners import LANES, build, stored
from tests.rl.worlds import SPEC

# ResFiT


def test_resfit_warms_up_with_the_base_and_uniform_noise_of_its_own_size() -> None:
    """warmup_noise 2 at scale 0.1: executed - base is uniform in +-0.2, beyond what the residual itself may
    do.
    """
    tuner, env, _ = build(
        ResidualMap(1, 0.1), flow_policy(SPEC), base_steps=900, env_steps=901, warmup_noise=2.0
    )
    while tuner.phase == "base":
        tuner.advance()
    env.close()
    executed, base = stored(tuner.mix["online"], "critic_action"), stored(tuner.mix["online"], "ctx")
    noise = (executed - base)[base.abs() < 0.8]  # where no limit cuts it
    assert noise.abs().max() <= 0.2 + 1e-6
    assert abs(noise.std() - 0.2 / math.sqrt(3.0)) < 0.01
    assert noise.abs().max() > 0.19


def test_resfit_explores_and_smooths_in_units_of_its_scale() -> None:
    """explore_std 0.5 of u at scale 0.1 is N(0, 0.05) of an action."""
    cfg = LearnerConfig(actor="deterministic", hidden=[16], explore_std=0.5)
    learner = OffPolicyLearner(4, ResidualMap(1, 0.1), cfg, generator("x"))
    ctx = torch.zeros(4000, 1)
    action = learner.map.to_critic(learner.act(torch.randn(4000, 4), ctx, explore=True), ctx)
    assert abs(action.std() - 0.05) < 0.008  # a little less: u is cut at +-1


# DAWN


def test_dawn_keeps_the_bases_own_transitions_as_anchors() -> None:
    """Base transitions are never mixed with training's, are not overwritten, and make up their fraction of
    every batch.
    """
    fractions = {"online": 0.75, "base": 0.25}
    tuner, env, _ = build(
        ResidualMap(1, 0.2), flow_policy(SPEC), stores=("online", "base"), fractions=fractions
    )
    while tuner.phase == "base":
        tuner.advance()
    anchors = stored(tuner.mix["base"], "critic_action")
    assert torch.equal(anchors, stored(tuner.mix["base"], "ctx"))  # u = 0: the base alone
    assert len(tuner.mix["online"]) == 0
    while not tuner.done:
        tuner.advance()
    env.close()
    assert torch.equal(anchors, stored(tuner.mix["base"], "critic_action"))
    assert len(tuner.mix["online"]) > 0
    data = tuner.runner.sample()
    known = {row.tobytes() for row in stored(tuner.mix["base"], "obs").numpy()}
    assert sum(row.tobytes() in known for row in data.obs[-4:].numpy()) == 4  # 25 % of 16, behind the others


# Policy Decorator


def test_policy_decorator_ramp() -> None:
    """Probability t / H per decision: none at first, all from H on; the rest equals the base bit for bit."""
    tuner, env, _ = build(
        ResidualMap(1, 0.5, steps=2),
        flow_policy(SPEC),
        base_steps=3,
        env_steps=2400,
        ramp_steps=1600,
        utd=0.0,
    )
    shares = []
    while not tuner.done:
        tuner.advance()
    env.close()
    store = tuner.mix["online"]
    for lane in range(LANES):
        count = int(store.head[lane])
        changed = (store.data["critic_action"] != store.data["ctx"])[lane, :count].any(-1).float()
        shares.append([float(part.mean()) for part in changed.tensor_split(6)])
    share = np.mean(shares, axis=0)  # sixths of 2,400 steps; saturated bases hide a few
    assert share[0] < 0.3
    assert np.all(np.diff(share[:4]) > 0.0)
    assert np.all(share[4:] > 0.85)


def test_policy_decorator_ramps_its_random_start_too() -> None:
    """base_steps at random from the first step on would be far from the base: here 900 of 1,800 steps."""
    tuner, env, _ = build(
        ResidualMap(1, 0.5, steps=2), flow_policy(SPEC), base_steps=900, env_steps=901, warmup_noise=1.0,
        ramp_steps=1800, utd=0.0,
    )  # fmt: skip
    while tuner.phase == "base":
        tuner.advance()
    env.close()
    store = tuner.mix["online"]
    changed = torch.stack(
        [(store.data["critic_action"] != store.data["ctx"])[lane, :140].any(-1) for lane in range(LANES)]
    ).float()
    early, late = changed[:, :70].mean(), changed[:, 70:].mean()
    assert 0.0 < early < 0.25
    assert early < late < 0.5


def test_policy_decorator_starts_with_next_to_no_noise() -> None:
    """Log standard deviation in [-20, 2], in the middle at first: exp(-9), as in the authors' network."""
    cfg = LearnerConfig(hidden=[16], log_std_min=-20.0, init_std=math.exp(-9.0))
    learner = OffPolicyLearner(4, ResidualMap(2, 0.1), cfg, generator("x"))
    _, log_std = learner.actor.distribution(torch.randn(7, 6))
    torch.testing.assert_close(log_std, torch.full((7, 2), -9.0))
    assert abs(learner.actor.log_std_bias) < 1e-9
    u = learner.act(torch.randn(7, 4), torch.zeros(7, 2), explore=True)
    assert 0.0 < u.abs().max() < 1e-3


def test_a_chunk_residual_sees_the_bases_chunk_not_its_own() -> None:
    """The stored context is the base's plan, although the queue is corrected in place."""
    tuner, env, _ = build(
        ResidualMap(1, 0.5, steps=2), flow_policy(SPEC), base_steps=3, env_steps=200, utd=0.0
    )
    seen: list[Tensor] = []
    plain = tuner.learner.act

    def act(obs: Tensor, ctx: Tensor, explore: bool) -> Tensor:
        seen.extend(ctx.clone())
        return plain(obs, ctx, explore)

    tuner.learner.act = act  # type: ignore[method-assign]
    while not tuner.done:
        tuner.advance()
    env.close()
    given = {row.numpy().tobytes() for row in seen}
    store = tuner.mix["online"]
    contexts = [row for lane in range(LANES) for row in store.data["ctx"][lane, 2 : int(store.head[lane])]]
    assert len(contexts) > 50
    assert all(row.numpy().tobytes() in given for row in contexts)


# The gate's margin


def gated_tuner(**config: Any) -> tuple[FineTuner, VecEnv]:
    """A gated residual that learns for 210 steps after 30 of the base alone."""
    learner = {"actor": "deterministic", "gate": True, "gate_margin": 2.0, "penalty": 0.01} | config
    settings = {"env_steps": 240, "base_steps": 30, "burn_in": 5, "learner": learner}
    tuner, env, _ = build(ResidualMap(1, 0.4), flow_policy(SPEC), **settings)
    return tuner, env


def test_the_margin_falls_with_the_remaining_steps() -> None:
    """2 until learning begins, then 2 * (240 - t) / 210 after t steps, and none at the end."""
    tuner, env = gated_tuner()
    while tuner.phase != "online":
        assert tuner.learner.critic.margin == 2.0
        tuner.advance()
    while not tuner.done:
        tuner.advance()
        assert math.isclose(tuner.learner.critic.margin, 2.0 * (240 - tuner.env_steps) / 210, abs_tol=1e-12)
    env.close()
    assert tuner.learner.critic.margin == 0.0


def test_training_does_not_depend_on_the_margin() -> None:
    """It affects only policies deployed before the end; the last policy is equal bit for bit."""
    ends = []
    for margin in (0.0, 2.0):
        tuner, env = gated_tuner(gate_margin=margin)
        while not tuner.done:
            tuner.advance()
        env.close()
        ends.append(tuner.learner.weights())
    assert ends[0].keys() > {"actor", "critic", "gate"}
    assert_same(*ends)


def assert_same(
    first: Mapping[str, Mapping[str, Tensor]], second: Mapping[str, Mapping[str, Tensor]]
) -> None:
    assert first.keys() == second.keys()
    for part in first:
        assert all(torch.equal(first[part][key], second[part][key]) for key in first[part])


def test_weights_are_restored_with_their_margin() -> None:
    """A policy is saved with the margin of its time; a resumed run has the same margin."""
    tuner, env = gated_tuner()
    while tuner.env_steps < 120:
        tuner.advance()
    kept, margin, state = (
        tuner.learner.weights(),
        tuner.learner.critic.margin,
        copy.deepcopy(tuner.state_dict()),
    )
    policy = deployed(flow_policy(SPEC), tuner.learner, tuner.learner.map)
    assert policy.config()["gate"]["margin"] == margin > 0.0
    while not tuner.done:
        tuner.advance()
    assert policy.config()["gate"]["margin"] == 0.0
    tuner.learner.load_weights(kept)
    assert policy.config()["gate"]["margin"] == margin
    env.close()
    again, other = gated_tuner()
    again.load_state_dict(state)
    other.close()
    assert again.learner.critic.margin == margin


def test_target_networks_can_be_deployed() -> None:
    """They act and gate with the margin of their time, and are not those that learn; training is the same."""
    last = dict[bool, Any]()
    for target in (False, True):
        tuner, env = gated_tuner(deploy_target=target)
        policy = deployed(flow_policy(SPEC), tuner.learner, tuner.learner.map)
        assert isinstance(policy, ResidualPolicy)
        while not tuner.done:
            assert policy.gate is not None
            assert policy.gate.margin == tuner.learner.weights()["gate"]["margin"].item()
            tuner.advance()
        env.close()
        last[target] = tuner.learner.weights(), policy.actor, policy.gate
    (weights, actor, gate), (same, target_actor, target_gate) = last[False], last[True]
    assert_same(weights, same)
    assert_same(
        {"actor": actor.state_dict(), "critic": gate.state_dict()},
        {name: weights[name] for name in ("actor", "critic")},
    )
    assert_same(
        {"target_actor": target_actor.state_dict(), "target": target_gate.state_dict()},
        {name: weights[name] for name in ("target_actor", "target")},
    )
    assert any(
        not torch.equal(a, b) for a, b in zip(gate.parameters(), target_gate.parameters(), strict=True)
    )


def test_sac_has_no_target_actor_to_deploy() -> None:
    with pytest.raises(ConfigError, match=r"learner\.actor=deterministic"):
        gated_tuner(actor="gaussian", deploy_target=True)
