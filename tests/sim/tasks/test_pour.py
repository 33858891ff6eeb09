"""Pouring: counted beads, an observation of constant size, and a slow expert."""

from __future__ import annotations

import math

import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import EpisodeSeeds
from sim.scenes.task_env import make_task_env
from sim.tasks.arm.pour import PourTask


def test_beads_rest_in_the_cup() -> None:
    """A second at rest: all beads stay, none is pressed through a wall."""
    env = make_task_env("pour", 2)
    obs = env.reset(EpisodeSeeds(("rest", 0)))["state"]
    for _ in range(20):
        obs = env.step(torch.zeros(2, 6))[0]["state"]
    assert obs[:, 6].tolist() == [1.0, 1.0]  # share in the cup
    assert obs[:, 7].tolist() == [0.0, 0.0]  # share in the bowl


def test_the_observation_does_not_grow_with_the_beads() -> None:
    assert make_task_env("pour", 1, beads=5).spec.obs == make_task_env("pour", 1, beads=27).spec.obs


def test_the_expert_flings_nothing() -> None:
    """A fall of 15 cm gives 1.7 m/s; no bead is faster, and none ends outside the bowl."""
    env = make_task_env("pour", 10, terminate_on_success=False)
    env.reset(EpisodeSeeds(("calm", 0)))
    task = env.task
    assert isinstance(task, PourTask)
    fastest_m_s = 0.0
    for _ in range(60):
        env.step(env.script().float())
        fastest_m_s = max(fastest_m_s, float(task._beads(env.view)[1].norm(dim=-1).max()))
    assert fastest_m_s < 1.7
    assert float(task._in_bowl(env.view, task._beads(env.view)[0]).min()) == 1.0


def test_beads_below_the_leaning_wall_are_not_in_the_bowl() -> None:
    """Beads on the table around the bowl's foot, under the rim, are spilt; those on its floor, along its wall
    and in a heap up to the rim are not.
    """
    env = make_task_env("pour", 1, beads=8)
    env.reset(EpisodeSeeds(("ring", 0)))
    task = env.task
    assert isinstance(task, PourTask)
    turn = torch.arange(8) * (math.pi / 4)  # the middles of the eight walls
    for aside_m, height_m, share in (
        (0.066, 0.006, 0.0),
        (0.0615, 0.006, 0.0),
        (0.072, 0.02, 0.0),
        (0.03, 0.014, 1.0),
        (0.044, 0.02, 1.0),
        (0.065, 0.05, 1.0),
        (0.0, 0.059, 1.0),
        (0.0, 0.061, 0.0),
    ):
        ring = torch.stack([aside_m * turn.cos(), aside_m * turn.sin(), torch.full((8,), height_m)], -1)
        assert float(task._in_bowl(env.view, env.view.goal[:, None] + ring)) == share, (aside_m, height_m)


def test_too_many_beads_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 to 27"):
        make_task_env("pour", 1, beads=100)
