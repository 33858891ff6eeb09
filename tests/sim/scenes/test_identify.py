"""System identification finds the parameters of a motion, and reports unusable data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_rl.apps.cli import main as cli
from robo_rl.core.errors import DataError
from sim.bodies.protocol import SUBSTEPS
from sim.scenes.identify import KNOWN, ArmModel, Segments, cut, fit, rms
from sim.scenes.randomise import load_randomise
from sim.scenes.task_env import make_task_env

TRUE = np.log(
    [0.8, 1.2, 0.9, 1.1, 0.7, 1.3, 1.0, 1.3, 0.9, 1.1, 0.8, 1.2, 0.75, 1.0]
)  # kp of 7 joints, then kv


def recorded(model: ArmModel, delay: int, shared: tuple[float, ...] = (), jump_rad: float = 0.03) -> Segments:
    """Four stretches of 10 steps under jumping targets, as the true parameters make them; no servo at its
    limit in small jumps.
    """
    rng = np.random.default_rng(0)
    start = np.array(make_task_env("lift", 1).wiring.robot.home_rad)
    commands = start + rng.uniform(-jump_rad, jump_rad, (4, 12, 7))
    blank = Segments(np.zeros((4, 11, 7)), np.zeros((4, 7)), commands)
    blank.q_rad[:, 0] = start
    theta = np.concatenate([TRUE, shared])
    found = model.errors(blank, theta[None], delay).reshape(4, 10, 7)  # less zeros: the positions themselves
    return replace(blank, q_rad=np.concatenate([blank.q_rad[:, :1], found], 1))


def test_identifies_the_servo_parameters() -> None:
    """The delay; every factor to 2 %, except where kp and kv slow a joint alike: there their ratio."""
    model = ArmModel(make_task_env("lift", 1).wiring, SUBSTEPS)
    found = fit(model, recorded(model, delay=1), delays=[0, 1])
    assert found.delay == 1
    std = np.concatenate([found.kp_std, found.kv_std])
    wrong = np.abs(np.log(np.concatenate([found.kp, found.kv])) - TRUE)
    assert (wrong < 0.02 + 2.0 * np.minimum(std, 0.03)).all()
    np.testing.assert_allclose(found.kp / found.kv, np.exp(TRUE[:7] - TRUE[7:]), rtol=0.03)
    assert found.rms_rad < 1e-3


def test_resting_joint_is_not_identified() -> None:
    """The last joint is commanded to hold: its factors stay the model's, and it counts as not identified."""
    model = ArmModel(make_task_env("lift", 1).wiring, SUBSTEPS)
    rng, start = np.random.default_rng(1), np.array(make_task_env("lift", 1).wiring.robot.home_rad)
    commands = start + rng.uniform(-0.03, 0.03, (4, 10, 7)) * (np.arange(7) != 6)
    blank = Segments(np.zeros((4, 11, 7)), np.zeros((4, 7)), commands)
    blank.q_rad[:, 0] = start
    moved = model.errors(blank, TRUE[None], 0).reshape(4, 10, 7)
    found = fit(model, replace(blank, q_rad=np.concatenate([blank.q_rad[:, :1], moved], 1)), delays=[0])
    assert found.found[:4].all()
    assert not found.found[6]
    assert found.kp_std[6] > 0.3
    assert abs(np.log(found.kp[6])) < 0.3


@pytest.mark.long
def test_it_finds_the_lag_of_motors(tmp_path: Path) -> None:
    """Motion with 1.6 times the model's lag: found to 5 %; the torque curve is never reached, so it is not
    identified.
    """
    path = tmp_path / "motors.yaml"
    path.write_text("{lag_s: 0.05, no_load_rad_s: 50}")
    model = ArmModel(make_task_env("lift", 1, actuator=str(path)).wiring, SUBSTEPS)
    assert model.motors == ("lag", "no_load")
    segments = recorded(model, delay=0, shared=(np.log(1.6), 0.0))
    found = fit(model, segments, delays=[0])
    (lag, lag_std), (_, no_load_std) = found.motors["lag"], found.motors["no_load"]
    assert lag == pytest.approx(1.6, rel=0.05)
    assert lag_std < 0.1 < KNOWN < no_load_std
    assert found.theta.shape == (16,)
    assert rms(model.errors(segments, found.theta[None], 0)[0]) < 1e-3


@pytest.mark.long
def test_fast_motion_identifies_the_no_load_speed(tmp_path: Path) -> None:
    """Jumps of 0.3 rad with motors that end at 0.7 of the model's 1 rad/s and lag 1.3 times as long: both to
    2 %.
    """
    path = tmp_path / "motors.yaml"
    path.write_text("{lag_s: 0.03, no_load_rad_s: 1.0}")
    model = ArmModel(make_task_env("lift", 1, actuator=str(path)).wiring, SUBSTEPS)
    found = fit(model, recorded(model, 0, (np.log(1.3), np.log(0.7)), jump_rad=0.3), delays=[0])
    assert found.motors["lag"][0] == pytest.approx(1.3, rel=0.02)
    assert found.motors["no_load"][0] == pytest.approx(0.7, rel=0.02)


def test_stretches_are_cut_with_the_commands_before_them() -> None:
    """By hand: 7 steps, stretches of 3 after a delay of up to 1: they start at steps 1 and 4."""
    q, command = np.arange(8.0)[:, None], 10.0 + np.arange(7.0)[:, None]
    parts = cut(q, np.zeros((8, 1)), command, steps=3, most_delay=1)
    assert parts.q_rad[:, :, 0].tolist() == [[1, 2, 3, 4], [4, 5, 6, 7]]
    assert parts.command_rad[:, :, 0].tolist() == [[10, 11, 12, 13], [13, 14, 15, 16]]
    with pytest.raises(DataError, match="too short"):
        cut(q, np.zeros((8, 1)), command, steps=9, most_delay=1)


def test_the_verb_writes_ranges_that_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded from an arm 20 % softer: the held-out error falls, and the file of ranges contains the
    softness.
    """
    real, data, out = tmp_path / "real.yaml", tmp_path / "data", tmp_path / "out"
    real.write_text("kp: [0.8, 0.8]")
    env = "env=arm/lift:control=joint_position"
    assert cli.main(["collect", f"{env},randomise={real}", "episodes=3", "num_envs=3", f"out={data}"]) == 0
    words = ["identify", f"data={data}", env, f"out={out}", "steps=8", "stretches=4", "delays=[0]"]
    assert cli.main(words) == 0
    error = json.loads((out / "results.json").read_text())["held_out_rms_rad"]
    assert error["after"] < 0.5 * error["before"]
    low, high = load_randomise(str(out / "randomise.yaml")).kp
    assert low <= 0.8 <= high
    assert "randomise.yaml" in capsys.readouterr().out


@pytest.mark.long
def test_the_verb_fits_motors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded from servos with twice the lag of the model: the written range contains the factor."""
    real, data, out = tmp_path / "real.yaml", tmp_path / "data", tmp_path / "out"
    real.write_text("lag: [2.0, 2.0]")
    env = "env=arm/lift:control=joint_position,actuator=lag"
    assert cli.main(["collect", f"{env},randomise={real}", "episodes=3", "num_envs=3", f"out={data}"]) == 0
    words = ["identify", f"data={data}", env, f"out={out}", "steps=8", "stretches=4", "delays=[0]"]
    assert cli.main(words) == 0
    low, high = load_randomise(str(out / "randomise.yaml")).lag
    assert low <= 2.0 <= high
    assert "actuator=lag,randomise=" in capsys.readouterr().out


def test_other_recordings_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert cli.main(["collect", "task=lift", "episodes=2", "num_envs=2", f"out={data}"]) == 0
    assert cli.main(["identify", f"data={data}", f"out={tmp_path / 'out'}"]) != 0
    assert "joint_position" in capsys.readouterr().err
