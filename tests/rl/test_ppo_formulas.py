"""PPO's advantages, surrogate, reward scale and learning rates, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from robo_rl.core.lanes import Lanes
from robo_rl.rl.on_policy.ppo import (
    RewardScale,
    clipped_surrogate,
    explained_variance,
    gae,
    learning_rate_factor,
    normal_log_prob,
    standardized,
)
from robo_rl.rl.on_policy.rollout import Rollout


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


def test_advantages_are_standardized() -> None:
    """Mean 0 and standard deviation 1; equal advantages give 0."""
    out = standardized(torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(out, torch.tensor([-1.0, 0.0, 1.0]) * math.sqrt(1.5))
    assert standardized(torch.full((4,), 7.0)).abs().max() == 0.0
