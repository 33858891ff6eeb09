"""Cameras of the simulated arm: they are those of its scene, in the size of the description."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.messages import Image
from hardware.topics import image_topic
from robo_rl.apps.cli.main import main
from robo_rl.apps.nodes.builders import sim_robot
from robo_rl.apps.nodes.node_sets import load_set
from robo_rl.apps.nodes.node_table import node_settings
from robo_rl.apps.nodes.preflight import check
from robo_rl.apps.nodes.preflight_pictures import SCENES
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ArraySpec
from sim.arms.arm6.body import SimulatedArm
from sim.arms.arm6.peg_cell import PegCell
from tests.hardware.bundles import arm_bundle, arm_env


def test_table_of_cameras_is_that_of_the_scenes() -> None:
    for scene, body in (("reach", SimulatedArm()), ("peg", PegCell().body)):
        cameras = {body.model.camera(i).name for i in range(body.model.ncam)}
        assert cameras == set(SCENES[scene])


@pytest.mark.long
def test_advice_for_a_bundle_with_pictures_can_be_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy of recordings of sim_arm: the refusal names scene and cameras, which are then accepted.

    The advice was cameras=front+wrist, with which sim_robot ended: 'Unknown camera'.
    """
    pictures = {f"image.{name}": ArraySpec((128, 128, 3), "uint8") for name in ("front", "wrist")}
    names = load_description("sim_arm").names
    state = {"state": ArraySpec((len(names),), unit=f"rad: {', '.join(names)}")}
    env = replace(arm_env(names, 0.2, 20.0), obs=state | pictures)
    given = {"bundle": str(arm_bundle(tmp_path / "bundle", env=env).folder), "goal": ""}
    with pytest.raises(ConfigError, match=r"give scene=peg cameras=front\+wrist\."):
        check(load_set("arm_sim").commands(given))
    assert check(load_set("arm_sim").commands(given | {"scene": "peg", "cameras": "front+wrist"})) == []
    assert main(["contract", f"bundle={given['bundle']}", "robot=sim_arm"]) == 0
    advised = f"robo-rl up arm_sim bundle={given['bundle']} scene=peg cameras=front+wrist"
    assert advised in capsys.readouterr().out


def test_camera_that_the_scene_lacks_is_refused_before_a_node_starts() -> None:
    with pytest.raises(ConfigError, match=r"scene=reach has no camera 'front'\. Cameras: scene=reach: view;"):
        check(load_set("arm_sim").commands({"cameras": "front"}))


def test_simulated_pictures_have_the_size_of_the_description() -> None:
    """front is in it; view, which is not, has the usual size."""
    commands = load_set("arm_sim").commands({"scene": "peg", "cameras": "front+view"})
    world, sizes = InProcessWorld(), dict[str, tuple[int, ...]]()
    sim_robot(node_settings("sim_robot", commands["sim_robot"][1:]), world.bus("sim_robot"))
    viewer = world.bus("viewer")

    def note(picture: Image, received_s: float) -> None:
        sizes[picture.frame] = picture.pixels.shape

    for name in ("front", "view"):
        image_topic(name).subscribe(viewer, note)
    viewer.spin(lambda: world.now() >= 0.1)
    assert sizes == {"front_optical": (128, 128, 3), "view_optical": (84, 84, 3)}
