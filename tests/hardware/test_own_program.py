"""The program in docs/ros2.md that drives an arm by hand, unchanged, with arm, filter and recorder."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")

from hardware.bus.dds.cdr import ros_types
from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.recording.bag_reader import Bag, find_bags
from hardware.topics import SAFE
from sim.arms.arm6.body import SimulatedArm

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ros2.md"


def test_program_of_the_docs_moves_the_arm_and_saves_the_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 s at 0.5 rad/s are 1 rad, through the filter; on virtual time."""
    (code,) = re.findall(r"```python\n(# hand\.py.*?)```", PAGE.read_text(), re.DOTALL)
    world, body, robot = InProcessWorld(), SimulatedArm(), load_description("sim_arm")
    begun_rad = body.read()[0][0]
    SimArmNode(world.bus("sim_robot"), body, robot.state_hz, robot)
    SafetyFilterNode(world.bus("safety_filter"), robot, arm=True)
    recorder = RecorderNode(
        world.bus("recorder"), RecorderConfig(str(tmp_path), start=True), [SAFE], lambda text: None
    )
    monkeypatch.setattr("hardware.bus.choose.make_bus", world.bus)
    exec(compile(code, str(PAGE), "exec"), {})
    late_s = world.now() + 1.0
    world.bus("clock").spin(lambda: world.now() >= late_s)
    assert body.read()[0][0] - begun_rad == pytest.approx(1.0, abs=0.1)
    recorder.finish()
    (path,) = find_bags(tmp_path)
    with closing(Bag(path, ros_types())) as bag:
        assert "episode/success" in bag.topics
