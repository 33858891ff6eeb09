"""`pybullet/vision_hover` as an environment: its flights and their success are those of `robo-rl vision`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import derive_seed
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera
from sim.engines.quad.craft import load_craft
from sim.flight.bullet.vision import VisionFlights
from sim.flight.bullet.vision_lane import VisionLanes
from sim.flight.trial import controller_pilot, fly
from sim.registry import list_envs, make_env
from sim.vec.conformance import check_vec_env

pytest.importorskip("pybullet")

SMALL = {"px": 16, "start_tilt_rad": 0.1, "start_speed_m_s": 0.1}


def test_the_environment_keeps_the_contract() -> None:
    assert "pybullet/vision_hover" in list_envs()
    with make_env("pybullet/vision_hover:px=16", 2, max_episode_steps=9) as env:
        check_vec_env(env, steps=20)
        assert env.render(1).shape == (256, 256, 3)


@pytest.mark.parametrize(("steps", "holds"), [(500, True), (20, False)])
def test_success_is_that_of_a_measured_flight(steps: int, holds: bool) -> None:
    """A controller flies the same start in both; in 0.2 s it does not reach the point."""
    tilt = {} if holds else {"start_tilt_rad": 0.5, "start_speed_m_s": 0.5}
    options = VisionLanes("vision_hover", max_episode_steps=steps, **(SMALL | tilt))  # type: ignore[arg-type]
    lane, craft = options(), load_craft("cf2x_l2f")
    seen = lane.reset(3)
    pilot = controller_pilot("pid", craft, options.hover.dt_s, 1)
    ended = False
    while not ended:
        seen, reward, terminated, truncated, success = lane.step(pilot(lane._flights.flights)[:, 0].numpy())
        ended = terminated or truncated
        assert reward == float(success)
    flown = VisionFlights(
        craft, options.hover, 8, 1, derive_seed("vision lane", 3), AirEffects(), FloorCamera(16), 25.0
    )
    trial = fly(flown.flights, controller_pilot("pid", craft, options.hover.dt_s, 1))
    assert success == bool(trial.held[0]) == holds
    last = trial.position_m[-1, :, 0]
    torch.testing.assert_close(lane._flights.flights.state[:3, 0], last)
    assert seen["image.down"].any()
    flown.close()
    lane.close()


def test_an_episode_is_a_function_of_its_seed() -> None:
    """Also the noise of the camera, its brightness and the accelerometer."""
    lane = VisionLanes("vision_hover", px=16)()
    first = {key: value.copy() for key, value in lane.reset(5).items()}
    lane.step(torch.zeros(4).numpy())
    other = lane.reset(6)
    assert (other["image.down"] != first["image.down"]).any()
    again = lane.reset(5)
    assert all((again[key] == first[key]).all() for key in first)
    lane.close()


def test_the_name_holds_what_differs_from_the_usual() -> None:
    assert VisionLanes("vision_hover").name == "pybullet/vision_hover"
    made = VisionLanes("vision_hover", craft="cf21", px=32, camera_hz=50.0, max_episode_steps=100)
    with make_env(made.name, 1) as env:
        assert env.spec.name == made.name
        assert (env.spec.obs["image.down"].shape, env.spec.max_episode_steps) == ((32, 32, 3), 100)
    with pytest.raises(ConfigError, match="vision_hover pays for success only, not 'dense'"):
        make_env("pybullet/vision_hover", 1, reward="dense")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("px", 100_000), ("px", 15), ("px", True), ("history", -1), ("history", 2.5), ("camera_hz", "abc"),
        ("camera_hz", 0), ("camera_hz", 30.0), ("start_tilt_rad", "abc"), ("start_tilt_rad", -1.0),
        ("start_speed_m_s", float("nan")),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(option: str, value: Any) -> None:
    """Before pictures of that size are allocated."""
    with pytest.raises(ConfigError, match=option):
        VisionLanes("vision_hover", **{option: value})
