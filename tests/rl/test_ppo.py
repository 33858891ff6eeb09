"""PPO: ratio 1 on the first minibatch, any action map, exact resume, and refused settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.core.views import ALL
from robo_rl.rl.on_policy.ppo import PpoConfig
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import RolloutTransitions
from tests.rl.ppo_tuners import MAPS, learner_config, make_tuner


@pytest.mark.parametrize("action_map", MAPS, ids=["step", "chunk", "steering", "shift"])
def test_ratio_is_one_on_the_first_minibatch(action_map: ActionMap) -> None:
    """Promise 3: log-probabilities recomputed at learning time equal those of acting, for any map. Decisions
    that ran while the weights changed are dropped, also in the second rollout.
    """
    tuner, env, _ = make_tuner(action_map)
    learner, acted, rounds = tuner.learner, dict[bytes, float](), list[RolloutTransitions]()
    plain_act, plain_update = learner.act, learner.update

    def act(obs: Tensor, ctx: Tensor, explore: bool) -> Tensor:
        u = plain_act(obs, ctx, explore)
        log_probs = learner.log_prob(torch.cat([obs, ctx], dim=-1), u)
        acted.update((row.numpy().tobytes(), float(p)) for row, p in zip(u, log_probs, strict=True))
        return u

    def update(data: RolloutTransitions, total: int) -> Any:
        log_prob = learner.log_prob(torch.cat([data.obs, data.ctx], dim=-1), data.u)
        stored = torch.tensor([acted[row.numpy().tobytes()] for row in data.u])
        torch.testing.assert_close(log_prob, stored, rtol=0.0, atol=1e-5)
        rounds.append(data)
        ratios: list[Tensor] = []
        plain_step = learner._step

        def step(x: Tensor, seen: Tensor, data: RolloutTransitions, old: Tensor, rows: Tensor) -> Any:
            ratios.append((learner.log_prob(seen, data.u) - old).exp())
            return plain_step(x, seen, data, old, rows)

        learner._step = step  # type: ignore[method-assign]
        info = plain_update(data, total)
        learner._step = plain_step  # type: ignore[method-assign]
        assert torch.equal(ratios[0], torch.ones_like(ratios[0]))
        assert info["actor/first_ratio_error"] < 1e-5
        assert not torch.equal(ratios[-1], torch.ones_like(ratios[-1]))
        return info

    learner.act, learner.update = act, update  # type: ignore[method-assign]
    while not tuner.done:
        tuner.advance()
    env.close()
    assert len(rounds) == 3


def test_only_the_running_decision_is_left_out() -> None:
    """20 steps, 3 lanes, step-wise: 60 decisions minus the running ones; the next rollout loses no others."""
    tuner, env, _ = make_tuner(ResidualMap(1, 0.5))
    counts, running = list[int](), list[Tensor]()
    plain = tuner.learner.update

    def update(data: RolloutTransitions, total: int) -> Any:
        counts.append(len(data.u))
        running.append(tuner.collector.running)
        return plain(data, total)

    tuner.learner.update = update  # type: ignore[method-assign]
    while len(counts) < 3:
        tuner.advance()
    env.close()
    # A decision cut by a round is stale when it ends; each round then still makes 20 per lane of its own.
    assert counts == [60 - int(cut.sum()) for cut in running]


@pytest.mark.parametrize(
    ("action_map", "lanes", "rollout", "minibatches"),
    [
        (ResidualMap(1, 0.5), 3, 2, 1),
        (ResidualMap(1, 0.5), 1, 3, 1),
        (ResidualMap(1, 0.5), 3, 7, 8),
        (ResidualMap(1, 0.5, steps=2), 3, 4, 1),
        (LatentMap(4, 1, 1.5), 1, 6, 1),
    ],
)
def test_shortest_allowed_rollouts(action_map: ActionMap, lanes: int, rollout: int, minibatches: int) -> None:
    """Wherever episodes end, every round has at least two decisions per minibatch."""
    tuner, env, _ = make_tuner(action_map, lanes, env_steps=600, rollout=rollout, minibatches=minibatches)
    sizes, rounds, plain = list[int](), list[int](), tuner.learner.update
    plain_step = tuner.learner._step

    def step(x: Tensor, *rest: Tensor) -> Any:
        sizes.append(len(x))
        return plain_step(x, *rest)

    def update(data: RolloutTransitions, total: int) -> Any:
        rounds.append(len(data.u))
        return plain(data, total)

    tuner.learner.update, tuner.learner._step = update, step  # type: ignore[method-assign]
    while not tuner.done:
        tuner.advance()
    env.close()
    assert len(rounds) == 600 // (lanes * rollout)
    assert min(rounds) >= 2 * minibatches
    assert min(sizes) >= 2


@pytest.mark.parametrize("action_map", MAPS, ids=["step", "chunk", "steering", "shift"])
def test_it_starts_at_the_base(action_map: ActionMap) -> None:
    """The mean is exactly 0 before the first round."""
    learner = PpoLearner(4, action_map, learner_config(), PpoConfig(value_bias=0.25), generator("x"))
    assert (
        learner.act(torch.randn(9, 4), torch.randn(9, action_map.ctx_dim), explore=False).abs().max() == 0.0
    )


def test_the_critic_starts_near_its_bias_and_learns_the_returns() -> None:
    """One batch with returns that depend on the state: the value is fitted; equal advantages do not change
    the actor.
    """
    learner = PpoLearner(
        4, DirectMap(1), learner_config(), PpoConfig(epochs=400, target_kl=9.0, warmup=0), generator("x")
    )
    obs = torch.randn(64, 4)
    returns = obs[:, 0].sin()
    before = learner.actor_opt.flat.clone()
    data = RolloutTransitions(obs, torch.zeros(64, 0), torch.randn(64, 1), torch.ones(64), returns)
    learner.update(data, total_rounds=1)
    assert (learner.value(obs, torch.zeros(64, 0)) - returns).abs().mean() < 0.1
    torch.testing.assert_close(learner.actor_opt.flat, before)


def test_a_step_too_far_ends_the_round() -> None:
    """With a target KL of 0, the first pass that changes the policy is the last one."""
    learner = PpoLearner(
        4, DirectMap(1), learner_config(), PpoConfig(epochs=50, target_kl=0.0, warmup=0), generator("x")
    )
    data = RolloutTransitions(
        torch.randn(64, 4), torch.zeros(64, 0), torch.randn(64, 1), torch.randn(64), torch.zeros(64)
    )
    learner.update(data, total_rounds=1)
    assert learner.updates == 2  # the first pass cannot tell: its ratio is 1


def test_it_learns_the_toy_task() -> None:
    """The last training episodes succeed clearly more often than the first ones."""
    tuner, env, _ = make_tuner(
        ResidualMap(1, 1.0), lanes=16, env_steps=16 * 500, rollout=50, epochs=10, std=0.5, target_kl=0.05
    )
    successes: list[float] = []
    while not tuner.done:
        successes += [float(episode.success) for episode in tuner.advance()]
    env.close()
    early, late = np.mean(successes[:200]), np.mean(successes[-200:])
    assert late > early + 0.2, (early, late)


@pytest.mark.parametrize("steps", [13, 27])
def test_stopped_and_resumed_equals_uninterrupted(steps: int, tmp_path: Path) -> None:
    """In the middle of the first and second rollout, through checkpoint files."""
    one, env, _ = make_tuner(ResidualMap(1, 0.5), minibatches=3)
    while not one.done:
        one.advance()
    env.close()
    half, env, seeds = make_tuner(ResidualMap(1, 0.5), minibatches=3)
    for _ in range(steps):
        half.advance()
    save_state(tmp_path, {"tuner": half.state_dict(), "env": env.snapshot()})
    count = seeds.count
    env.close()
    state = load_state(tmp_path)
    other, env, seeds = make_tuner(ResidualMap(1, 0.5), minibatches=3)
    env.restore(state["env"], EpisodeSeeds(seeds.root, count))
    other.load_state_dict(state["tuner"])
    while not other.done:
        other.advance()
    env.close()
    assert torch.equal(one.learner.actor_opt.flat, other.learner.actor_opt.flat)
    assert torch.equal(one.learner.critic_opt.flat, other.learner.critic_opt.flat)


def test_the_critic_has_its_own_layers_and_the_optimisers_all_their_settings() -> None:
    """One step from a zero gradient, rate 0.1: decay 0.5 leaves 0.95 of a weight."""
    cfg = learner_config(
        hidden=[4], critic_hidden=[8, 8], weight_decay=0.5, adam_beta2=0.9, lr_actor=0.1, lr_critic=0.1
    )
    learner = PpoLearner(3, DirectMap(1), cfg, PpoConfig(), generator("x"))
    assert [tuple(p.shape) for p in learner.critic.parameters() if p.ndim == 2] == [(8, 3), (8, 8), (1, 8)]
    for optimizer in (learner.actor_opt, learner.critic_opt):
        before = optimizer.flat.clone()
        optimizer.descend_gradient()
        torch.testing.assert_close(optimizer.flat, 0.95 * before)
        assert optimizer._adam.param_groups[0]["betas"] == (0.9, 0.9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heads", 10),
        ("critic_loss", "c51"),
        ("precision", "bfloat16"),
        ("n_step", 3),
        ("batch", 7),
        ("tau", 0.5),
    ],
)
def test_settings_of_off_policy_learners_are_refused(name: str, value: Any) -> None:
    """They would have no effect: rollouts are learned once, by one critic of states."""
    with pytest.raises(ConfigError, match=f"no use for method.learner.{name}={value}. Set it to "):
        PpoLearner(4, DirectMap(1), learner_config(**{name: value}), PpoConfig(), generator("x"))


@pytest.mark.parametrize(("name", "value"), [("activation", "tanh"), ("actor_norm", False), ("penalty", 1.0)])
def test_settings_of_the_gaussian_actor_are_refused_for_other_heads(name: str, value: Any) -> None:
    head = PpoLearner(4, DirectMap(1), learner_config(**{name: value}), PpoConfig(), generator("x")).head
    with pytest.raises(ConfigError, match=f"method.learner.{name}="):
        PpoLearner(4, DirectMap(1), learner_config(**{name: value}), PpoConfig(), generator("x"), ALL, head)


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: make_tuner(DirectMap(1), env_steps=59), "less than one rollout"),
        (lambda: make_tuner(ResidualMap(1, 0.5), rollout=1), "rollout=1 .*ppo.rollout=2 or more"),
        (lambda: make_tuner(ResidualMap(1, 0.5, steps=2), rollout=3), "rollout=3 .*ppo.rollout=4 or more"),
        (lambda: make_tuner(ResidualMap(1, 0.5), lanes=1, rollout=2), "rollout=2 .*ppo.rollout=3 or more"),
        (
            lambda: make_tuner(ResidualMap(1, 0.5), rollout=4, minibatches=8),
            "minibatches=8 .*ppo.rollout=7 or more",
        ),
        (
            lambda: PpoLearner(4, DirectMap(1), learner_config(), PpoConfig(clip_reward=0.0), generator("x")),
            "clip_reward=0 makes every reward 0",
        ),
        (lambda: PpoLearner(4, DirectMap(1), learner_config(gate=True), PpoConfig(), generator("x")), "gate"),
        (
            lambda: PpoLearner(
                4, DirectMap(1), learner_config(return_floor=True), PpoConfig(), generator("x")
            ),
            "floor",
        ),
        (lambda: PpoLearner(4, DirectMap(1), learner_config(), PpoConfig(std=0.0), generator("x")), "std"),
        (
            lambda: PpoLearner(4, DirectMap(1), learner_config(), PpoConfig(epochs=0), generator("x")),
            "ppo.epochs",
        ),
        (
            lambda: PpoLearner(
                4, DirectMap(1), learner_config(), PpoConfig(objective="aspo", clip=0.0), generator("x")
            ),
            "ppo.clip",
        ),
        (
            lambda: PpoLearner(4, DirectMap(1), learner_config(), PpoConfig(dual_clip=0.5), generator("x")),
            "dual_clip=0.5 bounds",
        ),
        (
            lambda: PpoLearner(
                4, DirectMap(1), learner_config(), PpoConfig(objective="aspo", dual_clip=3.0), generator("x")
            ),
            "no use for ppo.dual_clip=3.0",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(build: Any, word: str) -> None:
    """One sentence with the setting's name."""
    with pytest.raises(ConfigError, match=word):
        build()
