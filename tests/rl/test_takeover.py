"""Hybrid roll-outs: the base acts first, then the residual takes over (PLD)."""

from __future__ import annotations

import pytest
import torch

from policies.tuned.direct import DirectPolicy
from robo_rl.apps.tuning.maps import check_together
from robo_rl.conf.finetune import MapConfig, MethodConfig
from robo_rl.core.action_map import DirectMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.rl.collect import Collector
from robo_rl.rl.takeover import Takeover
from tests.rl.worlds import SPEC, make_tuner, small_config


def test_the_step_is_uniform_and_a_function_of_the_seed() -> None:
    """Of 0 to 3 each a quarter; the same seed gives the same step in any lane."""
    takeover, seeds = Takeover(4000, 3), torch.arange(4000)
    takeover.reset(Lanes.all(4000), seeds)
    counts = torch.bincount(takeover.steps, minlength=4)
    assert counts.sub(1000).abs().max() < 120  # 4 standard errors
    again = Takeover(2, 3)
    again.reset(Lanes.all(2), [7, 7])
    assert again.steps.tolist() == [int(takeover.steps[7])] * 2


def test_base_acts_before_its_step_and_the_actor_after() -> None:
    """An actor that always gives u = 1: stored u is 0 in the first k steps of an episode and 1 afterwards."""
    tuner, env, _ = make_tuner(ResidualMap(1, 0.2), small_config())
    collector = tuner.collector
    assert isinstance(collector, Collector)
    collector.takeover = takeover = Takeover(3, 3)
    takeover.steps[:] = torch.tensor([0, 2, 3])
    given = []
    for _ in range(4):
        collector.begin(lambda obs, ctx: torch.ones(len(obs), 1))
        given.append(collector.decisions.pending["u"].flatten().tolist())
        collector.finish()
    ended = collector.episodes.drain()
    env.close()
    assert given[:2] == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert ended or given[2:] == [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]


def test_state_restores_the_steps() -> None:
    """A checkpoint in the middle of an episode keeps the step at which the actor takes over."""
    tuner, env, _ = make_tuner(ResidualMap(1, 0.2), small_config())
    collector = tuner.collector
    assert isinstance(collector, Collector)
    collector.takeover = takeover = Takeover(3, 9)
    takeover.steps[:] = torch.tensor([4, 0, 9])
    collector.begin(None)
    collector.finish()
    state = collector.state_dict()
    takeover.steps[:] = 0
    collector.load_state_dict(state)
    env.close()
    assert takeover.steps.tolist() == [4, 0, 9]


def test_there_must_be_a_base() -> None:
    """From scratch, u = 0 is no policy: refused."""
    with pytest.raises(ConfigError, match="takeover=0"):
        check_together(MethodConfig(takeover=0.5, map=MapConfig("direct")), DirectMap(1), DirectPolicy(SPEC))
