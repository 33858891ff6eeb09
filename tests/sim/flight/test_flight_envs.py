"""Every flight task as an environment by name: contract, success, options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from robo_rl.conf.fly import FlyConfig
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.flight.fly.setup import FlightSetup
from sim.engines.quad.craft import load_craft
from sim.flight.setting import DEFAULT, FlightOptions, measured_task
from sim.flight.vec_env import QuadVecEnv
from sim.registry import list_envs, make_env
from sim.tasks.flight.names import TASKS
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTask
from sim.vec.conformance import check_vec_env

CRAFT = load_craft("cf2x_l2f")


@pytest.mark.parametrize("task", TASKS)
def test_every_task_keeps_the_contract(task: str) -> None:
    """Every clause, for every name that the registry lists."""
    assert f"quad/{task}" in list_envs()
    check_vec_env(QuadVecEnv(task, 2, max_episode_steps=7), steps=18)


@pytest.mark.parametrize("task", TASKS)
def test_a_bundle_of_fly_finds_its_environment(task: str) -> None:
    """`robo-rl fly` and the environment agree on observation, units, action, rate and length."""
    assert FlightSetup.of(FlyConfig(task=task)).spec() == make_env(f"quad/{task}", 1).spec


def test_name_holds_the_changed_options() -> None:
    """A policy of another craft, track or speed is measured with it, by its name alone."""
    config = FlyConfig(task="race", track="splits", craft="cf21", speed_m_s=3.0, history=4)
    spec = FlightSetup.of(config).spec()
    assert spec.name == "quad/race:craft=cf21,history=4,speed_m_s=3.0,track=splits"
    env = make_env(spec.name, 1)
    assert isinstance(env, QuadVecEnv)
    assert env.spec == spec
    assert env.craft.name == "cf21"
    assert FlightSetup.of(FlyConfig(task="hover", speed_m_s=2.0)).spec().name == "quad/hover"


def test_invalid_options_are_refused() -> None:
    """A track for hover, an unknown name, invalid words: each is reported, none ignored."""
    with pytest.raises(ConfigError, match="no track"):
        make_env("quad/hover:track=splits", 1)
    with pytest.raises(UnknownNameError, match="track"):
        make_env("quad/race:trak=splits", 1)
    with pytest.raises(ConfigError, match="cannot be read"):
        make_env("quad/race:splits", 1)
    with pytest.raises(UnknownNameError, match="quad/race"):
        make_env("quad/rase:track=splits", 1)


def flights(task: FlightTask, n: int) -> FlightOutcome:
    """Made-up episodes that succeed and fail at the bounds: offsets of 0.05 or 0.15 m, counts that grow, some
    ends.
    """
    t = task.max_steps
    offset = torch.zeros(t, 3, n)
    offset[:, 0] = torch.linspace(0.05, 0.15, n)
    task_state = torch.zeros(t, max(1, task.task_state_size), n)
    task_state[:, 0] = torch.arange(t)[:, None] * torch.linspace(0.2, 1.0, n)
    left = torch.zeros(t, n, dtype=torch.bool)
    left[t // 2 :, ::3] = True  # some end half way ...
    left[t - 1 :, 1::3] = True  # ... some in the last step
    return FlightOutcome(offset, torch.zeros(t, 3, n), task_state[:, : task.task_state_size], left)


@pytest.mark.parametrize("task", TASKS)
def test_stepwise_success_equals_the_score(task: str) -> None:
    """Environments score during the flight, `robo-rl fly` scores recordings: equal episodes must have equal
    scores.
    """
    whole: Any = measured_task(task, CRAFT, DEFAULT)
    short = replace(whole, max_steps=30)
    flown = flights(short, 24)
    expected = short.score(flown)
    tally, success, error_m = torch.zeros(24), torch.zeros(24, dtype=torch.bool), None
    running = torch.ones(24, dtype=torch.bool)
    for i in range(short.max_steps):
        flying = FlightStep(flown.offset_m[i], flown.task_state[i], torch.full((24,), i + 1), flown.left[i])
        new = short.tally(tally, flying)
        now, error_m = short.verdict(new, flying)
        tally, success = torch.where(running, new, tally), torch.where(running, now, success)
        running &= ~flown.left[i]
    assert torch.equal(success, expected.success)
    assert 0 < int(success.sum()) < 24
    if error_m is not None:
        torch.testing.assert_close(error_m[error_m.isfinite()], expected.error_m)


def test_the_picture_shows_where_the_goal_is() -> None:
    """A waypoint elsewhere is drawn elsewhere: the green dot moves with it."""
    env = make_env("quad/waypoints", 2)
    env.reset(EpisodeSeeds(("test", 0)))
    green = [(env.render(lane) == torch.tensor([0, 158, 115])).all(-1) for lane in (0, 1)]
    assert all(int(picture.sum()) >= 49 for picture in green)
    assert not torch.equal(*green)


def test_options_text_holds_only_changes() -> None:
    assert FlightOptions().name_suffix == ""
    assert FlightOptions(craft="cf21", integral=False).name_suffix == ":craft=cf21,integral=False"
