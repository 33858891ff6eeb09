"""PPO: formulas by hand, ratio 1 on the first minibatch, any action map, exact resume."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.core.views import ALL
from robo_rl.rl.collect import Collector
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.on_policy.ppo import (
    PpoConfig,
    RewardScale,
    clipped_surrogate,
    explained_variance,
    gae,
    learning_rate_factor,
    normal_log_prob,
    standardized,
)
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import Rollout, RolloutTransitions
from robo_rl.rl.on_policy.tuner import PpoTuner
from sim.vec.workers import WorkerVecEnv
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, TargetLane, widths

MAPS = [
    ResidualMap(1, 0.5),
    ResidualMap(1, 0.5, steps=2),
    LatentMap(4, 1, 1.5),
    LatentMap(4, 1, 1.5, "gaussian"),
]


def make_tuner(
    action_map: ActionMap, lanes: int = 3, env_steps: int = 180, **ppo: Any
) -> tuple[PpoTuner, WorkerVecEnv, EpisodeSeeds]:
    """A new tuner; equal calls give equal tuners."""
    settings = PpoConfig(**{"rollout": 20, "epochs": 3, "warmup": 0} | ppo)
    config = FinetuneConfig(env_steps=env_steps, base_steps=0, burn_in=0, learner=learner_config())
    base, env, root = flow_policy(SPEC), WorkerVecEnv(TargetLane, lanes), ("ppo", 0)
    learner = PpoLearner(4, action_map, config.learner, settings, generator("learner", 0))
    rollout = Rollout(lanes, settings.rollout, widths(action_map) | {"u": action_map.dim})
    collector = Collector(env, ChunkExecutor(base, lanes), EpisodeNoise((4, 1)), action_map, 0.9, rollout)
    seeds, first = EpisodeSeeds(root), EpisodeSeeds(root)
    collector.reset(env.reset(seeds), [next(first) for _ in range(lanes)])
    return PpoTuner(config, settings, collector, learner, rollout), env, seeds


def learner_config(**changes: Any) -> LearnerConfig:
    return LearnerConfig(**{"hidden": [16], "gamma": 0.9, "lr_actor": 1e-2, "lr_critic": 1e-2} | changes)


def test_advantages_by_hand() -> None:
    """gamma 0.9, lambda 0.5. A termination drops V(s') = 10, a time-out keeps it; no sum crosses either."""
    no, yes = False, True
    advantage = gae(
        reward=torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]),
        discount=torch.full((2, 3), 0.9),
        value=torch.zeros(2, 3),
        next_value=torch.full((2, 3), 10.0),
        terminated=torch.tensor([[no, no, yes], [no, no, no]]),
        ended=torch.tensor([[no, no, yes], [no, yes, no]]),
        lam=0.5,
    )
    last = 3.0  # terminated
    first_lane = [10.0 + 0.45 * (11.0 + 0.45 * last), 11.0 + 0.45 * last, last]
    second_lane = [10.0 + 0.45 * 11.0, 11.0, 12.0]  # a time-out at the second decision
    torch.testing.assert_close(advantage, torch.tensor([first_lane, second_lane]))


def test_a_time_out_can_count_as_failure() -> None:
    """learner.timeout_is_failure: V = 10 after a time-out is kept without it, and 0 with it."""
    rollout = Rollout(1, 1, {"obs": 1, "ctx": 0, "u": 1, "next_obs": 1, "next_ctx": 0})
    one, no = torch.ones(1), torch.zeros(1, dtype=torch.bool)
    row = torch.zeros(1, 1)
    values = {"obs": row, "ctx": row[:, :0], "u": row, "next_obs": row, "next_ctx": row[:, :0]}
    ends = {"reward": one, "steps": one, "terminated": no, "truncated": ~no}
    rollout.add(Lanes.all(1), values | ends, gamma=0.9)
    for fails, expected in ((False, 1.0 + 9.0 - 10.0), (True, 1.0 - 10.0)):
        data = rollout.transitions(
            lambda obs, ctx: torch.full(obs.shape[:-1], 10.0), 0.95, None, timeout_is_failure=fails
        )
        torch.testing.assert_close(data.advantage, torch.tensor([expected]))


def test_lambda_one_is_the_return_and_zero_is_the_td_error() -> None:
    """Without ends, A + V at lambda 1 is the discounted sum plus V after the last decision."""
    reward, value = torch.rand(1, 5), torch.rand(1, 6)
    no = torch.zeros(1, 5, dtype=torch.bool)
    last = no.clone()
    last[0, 4] = True
    inputs = (reward, torch.full((1, 5), 0.9), value[:, :5], value[:, 1:], no, last)
    total = sum(0.9**t * reward[0, t] for t in range(5)) + 0.9**5 * value[0, 5]
    torch.testing.assert_close(gae(*inputs, lam=1.0)[0, 0] + value[0, 0], total)
    torch.testing.assert_close(gae(*inputs, lam=0.0), reward + 0.9 * value[:, 1:] - value[:, :5])


def test_the_surrogate_by_hand() -> None:
    """Clip 0.2: a good action counts up to ratio 1.2, a bad one from 0.8 on."""
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss, info = clipped_surrogate(ratio.log(), torch.zeros(4), advantage, clip=0.2)
    torch.testing.assert_close(loss, -torch.tensor([1.2, -1.5, 0.5, -0.8]).mean())
    assert info["actor/clipped"] == 1.0
    torch.testing.assert_close(info["actor/ratio_error"], torch.tensor(0.5))
    assert info["actor/kl"] > 0.0


def test_log_probability_agrees_with_torch() -> None:
    """N(mean, 0.37^2) in three dimensions."""
    u, mean = torch.randn(7, 3), torch.randn(7, 3)
    expected = torch.distributions.Normal(mean, 0.37).log_prob(u).sum(-1)
    torch.testing.assert_close(normal_log_prob(u, mean, 0.37), expected)


def test_rewards_are_divided_by_the_spread_of_returns() -> None:
    """Compared with NumPy over two rollouts: discounted returns per lane, cut at ends, without padding."""
    rng = torch.Generator().manual_seed(0)
    scale, lanes, running, seen = RewardScale(2, clip=100.0), 2, [0.0, 0.0], list[float]()
    for _ in range(2):
        reward, ended = torch.rand(lanes, 6, generator=rng), torch.rand(lanes, 6, generator=rng) < 0.3
        valid = torch.arange(6) < torch.tensor([[6], [4]])
        got = scale(reward, torch.full((lanes, 6), 0.9), ended, valid)
        for t in range(6):
            for i in range(lanes):
                if valid[i, t]:
                    running[i] = running[i] * 0.9 + float(reward[i, t])
                    seen.append(running[i])
                    running[i] *= 0.0 if ended[i, t] else 1.0
        torch.testing.assert_close(got, reward / float(np.std(seen)), rtol=1e-3, atol=0.0)


def test_no_return_goes_on_after_an_episode_whose_last_decision_was_dropped() -> None:
    """Five rewards of 1, then a stale decision that ends the episode: the next running return is 1, also from
    a checkpoint.
    """
    lane, scale = Lanes.all(1, masked=False), RewardScale(1, clip=100.0)
    rollouts = [Rollout(1, 10, {"obs": 1, "ctx": 0, "u": 1, "next_obs": 1, "next_ctx": 0}) for _ in range(2)]

    def add(*, ended: bool) -> None:
        one = torch.ones(1, 1)
        values = {"obs": one, "ctx": one[:, :0], "u": one, "next_obs": one, "next_ctx": one[:, :0]}
        values |= {"reward": one[0], "steps": one[0], "terminated": torch.tensor([ended])}
        rollouts[0].add(lane, values | {"truncated": torch.tensor([False])}, 0.99)

    def running_return() -> float:
        rollouts[1].transitions(lambda obs, _: torch.zeros(obs.shape[:2]), 0.95, scale)
        return float(scale.state_dict()["running"])

    for _ in range(5):
        add(ended=False)
    rollouts[1].load_state_dict(rollouts[0].state_dict())
    assert running_return() > 4.0
    rollouts[0].clear(torch.tensor([True]))
    add(ended=True)
    add(ended=False)
    rollouts[1].load_state_dict(rollouts[0].state_dict())
    assert running_return() == 1.0
    assert not rollouts[0].count[0] - 1


def test_explained_variance_by_hand() -> None:
    """Returns 0, 2, 4 with variance 8/3. V = 0, 2, 4 explains all, V = 2 nothing, V = 4, 2, 0 less: -3."""
    returns = torch.tensor([0.0, 2.0, 4.0])
    for value, share in ((returns, 1.0), (torch.full((3,), 2.0), 0.0), (returns.flip(0), -3.0)):
        torch.testing.assert_close(explained_variance(returns - value, returns), torch.tensor(share))


def test_learning_rates_rise_then_fall_by_a_cosine() -> None:
    """5 rollouts of warm-up, half at the middle of the rest, 0 at the end."""
    assert learning_rate_factor(0, 105, 5) == pytest.approx(1 / 6)
    assert learning_rate_factor(5, 105, 5) == 1.0
    assert learning_rate_factor(55, 105, 5) == pytest.approx(0.5)
    assert learning_rate_factor(105, 105, 5) == pytest.approx(0.0)


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


def test_advantages_are_standardized() -> None:
    """Mean 0 and standard deviation 1; equal advantages give 0."""
    out = standardized(torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(out, torch.tensor([-1.0, 0.0, 1.0]) * math.sqrt(1.5))
    assert standardized(torch.full((4,), 7.0)).abs().max() == 0.0
