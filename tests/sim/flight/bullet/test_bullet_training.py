"""Training and environments in PyBullet: its states, our gradients; results do not depend on earlier
episodes.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from robo_rl.apps.cli.main import main
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import VEL
from sim.flight.bullet.flights import bullet_step
from sim.flight.flights import Flights
from sim.flight.setting import TASKS, FlightOptions, measured_task
from sim.flight.vec_env import QuadVecEnv
from sim.registry import make_env
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses

pytest.importorskip("pybullet")

CRAFT, TASK = load_craft("cf2x_l2f"), HoverTask()
SMALL = [
    "flights=6",
    "horizon=4",
    "hidden=[8]",
    "history=1",
    "eval_episodes=4",
    "eval_s=0.2",
    "video=false",
    "eager=true",
]


def flights(*, gradient: bool, elsewhere: bool = True) -> Flights:
    physics, step = bullet_step(CRAFT, TASK, 5, pure=True) if elsewhere else (None, None)
    return Flights(
        CRAFT, TASK, FlightSenses(), 5, 3, physics=physics, gradient=gradient, eager=True, step=step
    )


def test_states_of_pybullet_and_gradients_of_quad() -> None:
    """20 steps of training fly exactly as in PyBullet; the effect of a command on the velocity after one step
    is that of our dynamics, from the same state.
    """
    led, alone, ours = (
        flights(gradient=True),
        flights(gradient=False),
        flights(gradient=True, elsewhere=False),
    )
    action = torch.full((4, 5), 0.4, requires_grad=True)
    slopes = []
    for env in (led, ours):
        env.advance(action)
        (slope,) = torch.autograd.grad(env.state[VEL].square().sum() + env.obs.sum(), action)
        slopes.append(slope)
        env.detach()
    assert slopes[0].abs().max() > 1e-3
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0.02, atol=1e-3)
    alone.advance(action.detach())
    for _ in range(19):
        for env in (led, alone):
            env.advance(torch.full((4, 5), 0.2))
        led.detach()
    torch.testing.assert_close(led.state, alone.state, rtol=0.0, atol=2e-5)
    torch.testing.assert_close(led.obs, alone.obs, rtol=0.0, atol=1e-3)
    for _ in range(19):
        ours.advance(torch.full((4, 5), 0.2))
    assert (led.state - ours.state).abs().max() > 1e-4  # PyBullet has rotor drag and Euler steps of its own


def test_the_floor_is_that_of_the_room() -> None:
    """Waypoints, race and obstacles fly in rooms above z = 0; hover and figure-eight have no room."""
    floors = {}
    for name in TASKS:
        task = measured_task(name, CRAFT, FlightOptions())
        floors[name] = bullet_step(CRAFT, task, 1)[1].floor_m
    assert floors == {"hover": -1.0, "figure8": -2.0, "waypoints": 0.0, "race": 0.0, "obstacles": 0.0}


def test_the_environment_flies_there_and_an_episode_is_its_seed() -> None:
    """quad/hover:engine=pybullet keeps its name; episodes do not depend on earlier ones in their lane."""
    env = make_env("quad/hover:engine=pybullet", 3, max_episode_steps=30)
    assert isinstance(env, QuadVecEnv)
    assert env.spec.name == "quad/hover:engine=pybullet"
    seen = []
    for seeds in (count(0), count(0)):
        first = env.reset(seeds)["state"]
        for _ in range(20):
            obs, *_ = env.step(torch.full((3, 4), 0.3))
        seen.append((first, obs["state"]))
    assert seen[0][1].equal(seen[1][1])
    home = make_env("quad/hover", 3, max_episode_steps=30)
    assert home.reset(count(0))["state"].equal(seen[0][0])
    for _ in range(20):
        obs, *_ = home.step(torch.full((3, 4), 0.3))
    assert 1e-5 < (obs["state"] - seen[0][1]).abs().max() < 0.2
    env.close()


@pytest.mark.long
def test_a_flight_is_trained_and_measured_in_pybullet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`robo-rl train task=hover engine=pybullet`: table, results and bundle name the engine; `fly` gives
    equal bits.
    """
    runs = tmp_path / "whole", tmp_path / "cut"
    given = ["train", "task=hover", "engine=pybullet", *SMALL]
    assert main([*given, "updates=4", f"out={runs[0]}"]) == 0
    assert "hover in PyBullet" in capsys.readouterr().out
    results = json.loads((runs[0] / "results.json").read_text())
    assert results["engine"] == "pybullet"
    manifest = json.loads((runs[0] / "bundle" / "manifest.json").read_text())
    assert manifest["env"]["name"].startswith("quad/hover:engine=pybullet")
    assert main(["fly", "task=hover", "engine=pybullet", *SMALL, "updates=4", f"out={runs[1]}"]) == 0
    one, two = (load_file(run / "policy" / "weights.safetensors") for run in runs)
    assert all(one[key].equal(two[key]) for key in one)
