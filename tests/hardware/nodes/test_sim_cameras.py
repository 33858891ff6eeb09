"""Cameras of the simulated arm on the bus, and a policy that observes depth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.messages import DepthImage, Floats, Image
from hardware.topics import depth_topic, image_topic
from robo_rl.apps.nodes.builders import sim_robot
from robo_rl.conf.node import SimRobotNodeConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ArraySpec
from sim.arms.arm6.body import SimulatedArm
from tests.hardware.bundles import arm_bundle, arm_env
from tests.hardware.nodes.cell import Cell


@pytest.mark.parametrize("senses", ["rgb", "depth", "rgb+depth"])
def test_simulated_cameras(senses: str) -> None:
    """At their rate and of the requested size; the arm stands between the camera and the floor behind it."""
    world = InProcessWorld()
    sim_robot(
        SimRobotNodeConfig(cameras="view", senses=senses, image_size=48, camera_hz=10.0),
        world.bus("sim_robot"),
    )
    viewer, pictures, depths = world.bus("viewer"), list[Image](), list[DepthImage]()
    image_topic("view").subscribe(viewer, lambda picture, _: pictures.append(picture))
    depth_topic("view").subscribe(viewer, lambda depth, _: depths.append(depth))
    viewer.spin(lambda: world.now() >= 1.05)
    assert len(pictures) == (10 if "rgb" in senses else 0)
    assert len(depths) == (10 if "depth" in senses else 0)
    for picture in pictures:
        assert picture.pixels.shape == (48, 48, 3)
        assert picture.pixels.std() > 10
        assert picture.frame == "view_optical"
    body = SimulatedArm()
    eye_m = body.model.camera("view").pos
    for depth in depths:
        assert depth.depth_m.shape == (48, 48)
        assert depth.depth_m.dtype == np.float32
        nearest_m = np.linalg.norm(eye_m) - 1.0  # nothing of the arm is farther than that from its base
        assert nearest_m < depth.depth_m.min() < np.linalg.norm(eye_m)
    for picture, depth in zip(pictures, depths, strict=False):
        assert picture.stamp_s == depth.stamp_s


def test_unknown_cameras_are_refused() -> None:
    with pytest.raises(ConfigError, match="scene=reach has no camera 'front'"):
        sim_robot(SimRobotNodeConfig(cameras="front"), InProcessWorld().bus("sim_robot"))
    with pytest.raises(ConfigError, match="sim_quad has the camera front at scene=seek"):
        sim_robot(SimRobotNodeConfig(robot="sim_quad", cameras="view"), InProcessWorld().bus("sim_robot"))


@pytest.mark.parametrize(
    "chunk", [pytest.param(1, id="single", marks=pytest.mark.long), pytest.param(16, id="chunks")]
)
def test_policy_uses_recent_depth_only(tmp_path: Path, chunk: int) -> None:
    """As for pictures: until the camera dies, which is reported once."""
    env = arm_env(**{"depth.top": ArraySpec((32, 32), unit="m")})
    bundle = arm_bundle(tmp_path / "bundle", chunk, max(1, chunk // 2), env)
    cell = Cell(bundle, cameras={"top": {"width_px": 32, "height_px": 32, "rate_hz": 30}})
    bus = cell.world.bus("camera")
    publish = depth_topic("top").publisher(bus)
    depth = DepthImage(0.0, np.full((32, 32), np.nan, np.float32))
    bus.timer(1 / 30, lambda: publish(depth))
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    assert len(cell.raw) >= 40
    assert all(np.isfinite(message.position_rad).all() for message in cell.raw)
    cell.world.kill("camera")
    cell.until(4.0)
    assert cell.filter.at_rest
    dead = [line for line in cell.said if "has come yet" not in line]
    assert len(dead) == 1
    assert "No depth of the camera 'top' has come for 0.1 s" in dead[0]
