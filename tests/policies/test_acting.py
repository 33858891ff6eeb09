"""Acting on observations as they come equals an evaluation, and refuses observations that do not fit."""

from __future__ import annotations

from itertools import chain, count
from typing import Any

import numpy as np
import pytest
import torch

from policies.acting import LaneActor
from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.errors import ConfigError
from robo_rl.eval.rollout import evaluate
from tests.eval.fakes import PushButtonEnv
from tests.policies.small import flow_policy

SEEDS = [11, 5, 8, 3, 9]


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_actions_are_those_of_an_evaluation(scale: float) -> None:
    """Same episodes, same seeds of the noise: the same actions, bit for bit, chunks and endings included."""
    policy = flow_policy()
    evaluated, own = PushButtonEnv(2), PushButtonEnv(2)
    noise = EpisodeNoise((policy.chunk, policy.action_spec.dim), scale)
    evaluate(evaluated, policy, ChunkExecutor, noise, SEEDS)
    actor = LaneActor(policy, scale)
    obs = own.reset(chain(SEEDS, count(100)))
    actor.reset(seeds=SEEDS[:2])
    for expected in evaluated.actions[:9]:  # until the seeds after `SEEDS` differ
        action = actor.act({key: value.numpy() for key, value in obs.items()})
        assert torch.equal(action, expected)
        obs, *_, info = own.step(action)
        actor.reset(info["final_mask"], seeds=own._seed)


def test_without_seeds_every_episode_has_its_own_noise() -> None:
    """Noise repeats in a policy loaded anew, and differs between lanes and episodes; scale 0 has none."""
    obs = {"state": torch.ones(2, 2)}
    actor, other = LaneActor(flow_policy(), 1.0), LaneActor(flow_policy(), 1.0)
    first = actor.act(obs)
    assert torch.equal(first, other.act(obs))
    assert first[0] != first[1]
    actor.reset()
    assert not torch.equal(actor.act(obs), first)
    plain = LaneActor(flow_policy(), 0.0).act(obs)
    assert plain[0] == plain[1]


def test_after_a_full_reset_the_batch_may_have_another_size() -> None:
    actor = LaneActor(flow_policy(), 0.0)
    actor.act({"state": np.zeros((2, 2))})
    with pytest.raises(ConfigError, match=r"have 3 lanes, those before had 2\. Call reset\(\)"):
        actor.act({"state": np.zeros((3, 2))})
    actor.reset()
    assert actor.act({"state": np.zeros((3, 2)), "unread": np.zeros(1)}).shape == (3, 1)
    actor.reset([2], seeds=[4])
    actor.reset([])
    for lanes, seeds, said in (
        ([3], None, "There is no lane 3"),
        (torch.ones(2, dtype=torch.bool), None, "mask of lanes has 2 entries, expected 3"),
        ([0, 1], [1], "seeds has 1 numbers for 2 lanes"),
        (["a"], None, "lanes cannot be used"),
        (None, [0.5], "seeds cannot be used"),
    ):
        with pytest.raises(ConfigError, match=said):
            actor.reset(lanes, seeds)


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("obs", "said"),
    [
        (np.zeros((1, 2)), "takes a dict of observations, as the environment returns it, found ndarray"),
        ({"stat": np.zeros((1, 2))}, r"reads 'state', which the observations lack; they hold \['stat'\]"),
        ({"state": np.zeros(2)}, r"'state' has shape \(2,\), expected \(lanes, 2\): the first axis counts"),
        ({"state": "far"}, "'state' is str, expected: an array or a tensor"),
    ],
)
def test_observations_that_do_not_fit_are_refused(obs: Any, said: str) -> None:
    """The next observation that fits is acted on as if nothing had been."""
    actor = LaneActor(flow_policy(), 0.0)
    with pytest.raises(ConfigError, match=said):
        actor.act(obs)
    assert actor.act({"state": torch.zeros(1, 2)}).shape == (1, 1)
