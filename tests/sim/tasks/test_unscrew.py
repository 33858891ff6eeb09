"""The thread of `unscrew`: contact between a pin and two rails, which must act as a screw in every engine."""

from __future__ import annotations

import math

import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import EpisodeSeeds
from sim.scenes.task_env import make_task_env
from sim.tasks.arm.unscrew import PITCH_M
from tests.sim.engines.worlds import ENGINES


@pytest.mark.parametrize("engine", ENGINES)
def test_cap_rises_with_its_thread(engine: str) -> None:
    """rise = pitch x turns, within the pin's play and what a pulling hand presses out of soft contact."""
    env = make_task_env("unscrew", 2, engine=engine, threads=1, turns=0.5)
    env.reset(EpisodeSeeds(("thread", 0)))
    worst_m, turned = 0.0, 0.0
    for _ in range(60):
        env.step(env.script().float())
        turn, rise_m = env.view.joint("turn")[0], env.view.joint("rise")[0]
        inside = turn < math.pi - 0.2
        off_m = (rise_m - PITCH_M * turn / (2.0 * math.pi)).abs()
        worst_m = max(worst_m, float(torch.where(inside, off_m, 0.0).max()))
        turned = max(turned, float(torch.where(inside, turn, 0.0).max()))
    env.close()
    assert worst_m < 0.0015
    assert turned > 1.5


@pytest.mark.parametrize("engine", ENGINES)
def test_cap_cannot_be_pulled_off(engine: str) -> None:
    """Gripped and pulled for a second with the largest permitted force, it stays."""
    env = make_task_env("unscrew", 2, engine=engine, threads=1)
    env.reset(EpisodeSeeds(("pull", 0)))
    for _ in range(25):
        env.step(env.script().float())
    turned = env.view.joint("turn")[0]
    for _ in range(20):
        env.step(torch.tensor([0.0, 0.0, 1.0, 0.0, -1.0]).expand(2, 5))
    rise_m = env.view.joint("rise")[0]
    env.close()
    assert float((rise_m - PITCH_M * turned / (2.0 * math.pi)).abs().max()) < 0.003


def test_thread_contacts_with_moving_fixtures() -> None:
    """MuJoCo excludes contacts of a body with its parent unless that is static; in MuJoCo 4 a fixture is
    not.
    """
    model = make_task_env("unscrew", 1, threads=1).model
    assert int(model.body("cap").parentid[0]) != model.body("post").id


def test_impossible_turns_are_refused() -> None:
    with pytest.raises(ConfigError, match="turns"):
        make_task_env("unscrew", 1, turns=9.0)
