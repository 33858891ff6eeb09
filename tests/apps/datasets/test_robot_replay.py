"""An episode on a robot is teleoperation: through the filter, flagged, and never with a jump at its start."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.topics import INTERVENTION
from robo_rl.apps.cli.main import main
from robo_rl.apps.datasets import robot_replay
from robo_rl.apps.datasets.robot_replay import EpisodeDevice, joint_targets, play
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.spec import ActionSpec
from robo_rl.data.review.one_episode import episode_at
from robo_rl.data.store import DatasetWriter
from robo_rl.runs.signals import StopRequest
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
    assert flags == [True, False]


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


def test_a_far_start_is_approached_at_the_given_speed() -> None:
    """0.9 rad at 0.6 rad/s: 30 rows of 20 Hz lead to the first target, and do not count as frames."""
    target_rad = np.full((10, 3), [0.0, 0.9, 0.0])
    world, body, shown = InProcessWorld(), LagArm(), list[int]()
    SimArmNode(world.bus("robot"), body, 50.0, arm())
    SafetyFilterNode(world.bus("filter"), arm(), arm=True)
    device = EpisodeDevice(target_rad, RATE_HZ, shown.append)
    begin_s = world.now()
    played, far_rad = play(world.bus("replay"), device, arm(), target_rad, approach_rad_s=0.6)
    assert (played, shown[0], shown[-1]) == (10, 0, 10)
    assert world.now() - begin_s > 30 / RATE_HZ
    assert far_rad < 0.1
    assert body.place == pytest.approx(target_rad[0], abs=0.02)


def test_a_filter_that_passes_nothing_is_no_successful_replay() -> None:
    """A killed replay leaves the filter disarmed: an arm that does not move is an error."""
    world, body = InProcessWorld(), LagArm()
    SimArmNode(world.bus("robot"), body, 50.0, arm())
    SafetyFilterNode(world.bus("filter"), arm(), arm=False)
    device = EpisodeDevice(np.zeros((10, 3)), RATE_HZ, lambda _: None)
    with pytest.raises(DriverError, match=r"nothing would move: .*not armed.*robo-rl call filter/arm"):
        play(world.bus("replay"), device, arm(), np.zeros((10, 3)))


def test_a_stop_request_lets_go_of_the_arm() -> None:
    """Ctrl-C and SIGTERM end the intervention, so that a policy or operator can go on at once."""
    world, body, flags = InProcessWorld(), LagArm(), list[bool]()
    INTERVENTION.subscribe(world.bus("probe"), lambda message, _: flags.append(message.on))
    SimArmNode(world.bus("robot"), body, 50.0, arm())
    SafetyFilterNode(world.bus("filter"), arm(), arm=True)
    stop = StopRequest(say=False)

    def ask(frames: int) -> None:
        stop.requested = frames >= 5

    device = EpisodeDevice(np.zeros((30, 3)), RATE_HZ, ask)
    played, _ = play(world.bus("replay"), device, arm(), np.zeros((30, 3)), stop=stop)
    assert 5 <= played < 8
    probe = world.bus("last")
    end_s = probe.now() + 0.1
    probe.spin(lambda: probe.now() > end_s)
    assert flags[-1] is False


def test_sigquit_lets_go_of_the_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-\\ would end the process, and nobody would tell the filter that the intervention is over."""
    path, before = dataset(tmp_path / "set", "rad: c, b, a"), signal.getsignal(signal.SIGQUIT)

    def quit_in_the_middle(*given: object) -> tuple[int, float]:
        handler = signal.getsignal(signal.SIGQUIT)
        assert callable(handler), "SIGQUIT has no handler while the arm moves"
        signal.raise_signal(signal.SIGQUIT)
        return 3, 0.0

    monkeypatch.setattr(robot_replay, "load_description", lambda name: arm())
    monkeypatch.setattr(robot_replay, "make_bus", lambda *given: InProcessWorld().bus("replay"))
    monkeypatch.setattr(robot_replay, "play", quit_in_the_middle)
    assert main(["data", "replay", f"path={path}", "robot=sim_arm"]) == 130
    assert "the arm was let go" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGQUIT) is before


def test_settings_of_the_simulator_are_refused_beside_a_robot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dataset(tmp_path / "set", "rad: c, b, a")
    assert main(["data", "replay", f"path={path}", "robot=sim_arm", "seed=1"]) == 2
    assert "seed= belongs to a replay in the simulator" in capsys.readouterr().err


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
