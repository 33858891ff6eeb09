"""A scene of one's own: what its MJCF need not say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sim.asset_files import ASSETS
from sim.engines.mujoco.engine import MujocoEngine
from sim.engines.scene import compile_scene

SCENE = """<mujoco><option timestep="0.005" integrator="implicitfast"/><worldbody>
<geom type="plane" size="2 2 .1"/><body name="cube" pos="0.5 0 0.02"><freejoint name="cube"/>
<geom type="box" size=".02 .02 .02" mass=".05"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize(
    ("cameras", "name"),
    [
        ('<camera name="side" pos="0 -2 1"/><camera name="view" pos="0 -1 1"/>', "view"),
        ('<camera pos="0 0 3"/><camera name="side" pos="0 -2 1"/><camera name="top" pos="0 0 2"/>', "side"),
        ("", ""),
    ],
)
def test_a_scene_is_shown_by_the_cameras_that_it_has(cameras: str, name: str, tmp_path: Path) -> None:
    """A scene without a camera `view` could not be rendered, and no page said so."""
    path = tmp_path / "own.xml"
    path.write_text(SCENE.replace("<worldbody>", f"<worldbody>{cameras}"))
    scene = compile_scene(path, ASSETS / "panda.xml")
    assert scene.video_camera == name
    picture = MujocoEngine(scene, 1).render(0, scene.video_camera, 16, 16)
    assert picture.shape == (16, 16, 3)


@pytest.mark.parametrize("option", ["", '<option><flag autoreset="enable"/></option>'])
def test_a_diverged_world_is_not_restarted(option: str, tmp_path: Path) -> None:
    """By default MuJoCo puts it back to the MJCF's pose: its episode would go on as if it were valid."""
    path = tmp_path / "own.xml"
    path.write_text(SCENE.replace("<worldbody>", f"{option}<worldbody>"))
    engine = MujocoEngine(compile_scene(path, ASSETS / "panda.xml"), 1)
    saved = engine.save()
    saved["rows"][0, engine.scene.model.nq] = 1e300  # a speed
    engine.load(saved)
    engine.step(torch.zeros(1, engine.scene.model.nu, dtype=torch.float64), 10)
    physics = engine.physics()
    assert not (torch.isfinite(physics.qpos).all() and float(physics.qvel.abs().max()) < 1e3)
