"""Checks that every method with deep critics must pass: an exact resume, and a bandit that it solves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.rl.tuners import batch, direct


def run(tuner: FineTuner, until: int) -> None:
    while tuner.env_steps < until:
        tuner.advance()


def resumed_exactly(folder: Path, stops: Sequence[int], until: int, **settings: Any) -> FineTuner:
    """Stop a run at each of these steps and resume it from files: at `until` every number of the learner's
    state must be that of a run without a stop, which is returned.
    """
    env: Any
    whole, env, _ = direct(**settings)
    run(whole, until)
    env.close()
    for stop in stops:
        first, env, seeds = direct(**settings)
        run(first, stop)
        save_state(folder, {"tuner": first.state_dict(), "env": env.snapshot(), "seeds": seeds.count})
        env.close()
        second, env, seeds = direct(**settings)
        state = load_state(folder)
        seeds.count = int(state["seeds"])
        env.restore(state["env"], seeds)
        second.load_state_dict(state["tuner"])
        run(second, until)
        env.close()
        check_same(whole.learner.state_dict(), second.learner.state_dict())
    return whole


def check_same(one: Any, other: Any, where: str = "") -> None:
    """Raise AssertionError that names the first entry of two nested states which differs."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            check_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, (first, second) in enumerate(zip(one, other, strict=True)):
            check_same(first, second, f"{where}/{i}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def bandit_miss(made: OffPolicyLearner, updates: int) -> float:
    """Mean miss after so many updates of a contextual bandit, r = -(a - x_0 / 2)^2; u = 0 misses by 0.38."""
    data = batch(128)
    best = 0.5 * data.obs[:, 0].clamp(-1.5, 1.5)
    data = dataclasses.replace(data, reward=-(data.critic_action[:, 0] - best).square())
    for _ in range(updates):
        info = made.update(data)
    assert all(torch.isfinite(value) for value in info.values())
    return float((made.act(data.obs, data.ctx, explore=False)[:, 0] - best).abs().mean())
