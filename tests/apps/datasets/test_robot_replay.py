"""An episode on a robot is teleoperation: through the filter, flagged, and never with a jump at its start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.topics import INTERVENTION
from robo_rl.apps.datasets.robot_replay import EpisodeDevice, joint_targets, play
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.spec import ActionSpec
from robo_rl.data.review.one_episode import episode_at
from robo_rl.data.store import DatasetWriter
from tests.data.recordings import STATE_ENV
from tests.hardware.arm_descriptions import arm
from tests.hardware.nodes.fakes import LagArm

RATE_HZ = 20.0


def dataset(path: Path, unit: str) -> Path:
    """30 frames; the joints are named in another order than in the description."""
    env = replace(STATE_ENV, action=ActionSpec((-1.0,) * 3, (1.0,) * 3, unit))
    writer = DatasetWriter.create(path, env, stamps=(), min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        for i in range(30):
            episode.add({"state": np.zeros(3)}, np.array([0.0, 0.01 * i, -0.005 * i]))
        episode.commit()
    writer.close()
    return path


def test_the_arm_follows_the_episode_as_an_intervention(tmp_path: Path) -> None:
    """Joint b is third in the actions: it ends at 0.29 rad, a at -0.145."""
    path = dataset(tmp_path / "set", "rad: c, b, a")
    target_rad = joint_targets(episode_at(path, 0), arm())
    np.testing.assert_allclose(target_rad[-1], [-0.145, 0.29, 0.0], atol=1e-6)
    world, body, flags, shown = InProcessWorld(), LagArm(), list[bool](), list[int]()
    INTERVENTION.subscribe(world.bus("probe"), lambda message, _: flags.append(message.on))
    SimArmNode(world.bus("robot"), body, 50.0, arm())
    SafetyFilterNode(world.bus("filter"), arm(), arm=True)
    device = EpisodeDevice(target_rad, RATE_HZ, shown.append)
    played, far_rad = play(world.bus("replay"), device, arm(), target_rad)
    assert played == 30
    assert shown[-1] == 30
    assert far_rad < 0.05
    assert body.place == pytest.approx(target_rad[-1], abs=0.02)
    assert flags[0] is False
    assert flags.count(True) == 1


def test_a_start_far_from_the_arm_is_refused(tmp_path: Path) -> None:
    """Nothing moves, and the sentence names the joint."""
    target_rad = np.full((10, 3), [0.0, 0.9, 0.0])
    world, body = InProcessWorld(), LagArm()
    SimArmNode(world.bus("robot"), body, 50.0, arm())
    SafetyFilterNode(world.bus("filter"), arm(), arm=True)
    device = EpisodeDevice(target_rad, RATE_HZ, lambda _: None)
    with pytest.raises(DriverError, match=r"not begun.*b"):
        play(world.bus("replay"), device, arm(), target_rad)
    assert body.place == pytest.approx(np.zeros(3), abs=1e-6)


def test_a_robot_that_does_not_run_is_named() -> None:
    world = InProcessWorld()
    device = EpisodeDevice(np.zeros((3, 3)), RATE_HZ, lambda _: None)
    with pytest.raises(DriverError, match="sends no joint_states"):
        play(world.bus("replay"), device, arm(), np.zeros((3, 3)))


@pytest.mark.parametrize("unit", ["", "rad/s: a, b, c", "rad: a, b, d"])
def test_actions_that_are_no_positions_of_these_joints_are_refused(tmp_path: Path, unit: str) -> None:
    path = dataset(tmp_path / "set", unit)
    with pytest.raises(ConfigError, match="needs positions of its joints"):
        joint_targets(episode_at(path, 0), arm())
