"""The simulated quadcopter of `robo-rl up quad_sim` is the craft, with the camera, that its bundle knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.messages import Image
from hardware.topics import image_topic
from policies.deploy import bundle as bundles
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes import builders
from robo_rl.apps.nodes.node_sets import load_set
from robo_rl.apps.nodes.node_table import node_settings
from robo_rl.apps.nodes.preflight_pictures import check_scene
from robo_rl.apps.nodes.quads.craft_model import bundle_craft
from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import load_craft
from sim.flight.robot import QuadBody
from sim.flight.seek.vec_env import SeekVecEnv
from tests.hardware.bundles import quad_bundle


def trained_on(small: Bundle, image_size: int, craft: str) -> Bundle:
    """Contract of a bundle of `drone/seek` with these options; its graph is not run."""
    env = SeekVecEnv("seek", 1, image_size=image_size, craft=craft).spec
    return replace(small, env=env, chunk=8, execute=2)


def simulated(monkeypatch: pytest.MonkeyPatch, made: Bundle, *more: str) -> tuple[str, tuple[int, ...]]:
    """(craft, shape of its pictures) of the node that `up quad_sim scene=seek` starts for this bundle."""
    flown: list[str] = []

    class Noted(QuadBody):
        def __init__(self, craft: Any, **settings: Any) -> None:
            super().__init__(craft, **settings)
            flown.append(craft.name)

    monkeypatch.setattr(bundles, "load_bundle", lambda folder: made)
    monkeypatch.setattr("sim.flight.robot.QuadBody", Noted)
    given = {"bundle": str(made.folder), "scene": "seek", "level": "rates"}
    words = load_set("quad_sim").commands(given)["sim_robot"]
    world, shapes = InProcessWorld(), list[tuple[int, ...]]()
    builders.sim_robot(node_settings("sim_robot", [*words[1:], *more]), world.bus("sim_robot"))
    viewer = world.bus("viewer")
    image_topic("front").subscribe(viewer, lambda picture, at: _note(shapes, picture))
    viewer.spin(lambda: world.now() >= 0.1)
    return flown[0], shapes[0]


def _note(shapes: list[tuple[int, ...]], picture: Image) -> None:
    shapes.append(picture.pixels.shape)


@pytest.mark.parametrize(("image_size", "craft"), [(64, "cf2x_l2f"), (48, "cf21")])
def test_the_simulated_craft_is_the_one_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image_size: int, craft: str
) -> None:
    """It was a cf2x_l2f with pictures of 64 pixels for every bundle."""
    made = trained_on(quad_bundle(tmp_path / "bundle"), image_size, craft)
    assert simulated(monkeypatch, made) == (craft, (image_size, image_size, 3))


def test_settings_of_the_node_precede_those_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a flight of a policy with another craft than its own."""
    made = trained_on(quad_bundle(tmp_path / "bundle"), 48, "cf21")
    found = simulated(monkeypatch, made, "craft=cf2x_l2f", "image_size=96")
    assert found == ("cf2x_l2f", (96, 96, 3))


@pytest.mark.parametrize(
    ("name", "craft"),
    [
        ("quad/hover", "cf2x_l2f"),
        ("quad/hover:level=rates,craft=cf21", "cf21"),
        ("drone/seek:image_size=96", "cf2x_l2f"),
    ],
)
def test_the_craft_of_a_bundle_is_in_the_name_of_its_environment(
    tmp_path: Path, name: str, craft: str
) -> None:
    small = quad_bundle(tmp_path / "bundle")
    assert bundle_craft(replace(small, env=replace(small.env, name=name))) == load_craft(craft)


def test_the_bundle_of_a_simulated_arm_is_refused() -> None:
    """It has no effect there: the camera's size is that of the description."""
    with pytest.raises(ConfigError, match=r"bundle= of sim_robot is for robot=sim_quad"):
        check_scene([("sim_robot", node_settings("sim_robot", ["bundle=runs/reach/bundle"]))])
