"""`robo-rl vision` from scratch to a bundle, in small: output files, and refused teachers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import pytest

from policies.flight.policy import FlightPolicy
from robo_rl.apps.cli.main import main
from robo_rl.apps.vision import left_in
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.flight.vision.runs import load_teacher, vision_setup, with_craft_of
from robo_rl.runs.run_dir import RunDir
from sim.engines.quad.craft import FOLDER
from sim.registry import make_env

pytest.importorskip("pybullet")

SMALL = [
    "px=16", "flights=2", "rounds=2", "shots=8", "eye_updates=4", "eval_episodes=2", "eval_s=0.12",
    "teacher_updates=1", "eager=true",
]  # fmt: skip


@pytest.mark.long
def test_vision_writes_results_video_and_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The contract names image and state with their rates; the table has teacher, student and student without
    camera.
    """
    out = tmp_path / "vision"
    assert main(["vision", *SMALL, f"out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert {
        "position_error_m",
        "terminated_fraction",
        "success",
        "train_cpu_s",
        "px",
        "camera_hz",
    } <= results.keys()
    assert [row["name"] for row in results["rows"]] == ["policy", "teacher", "blind"]
    manifest = json.loads((out / "bundle" / "manifest.json").read_text())
    assert manifest["env"]["obs"]["image.down"]["shape"] == [16, 16, 3]
    assert manifest["env"]["obs"]["image.down"]["dtype"] == "uint8"
    assert manifest["rates_hz"] == {"image.down": 25.0, "state": 100.0}
    for name in ("flight.png", "flight.mp4", "bundle/policy.onnx"):
        assert (out / name).stat().st_size > 0
    said = capsys.readouterr().out
    assert "without camera" in said
    assert f"Next:   robo-rl evaluate policy={out} num_envs=10\n" in said
    assert main(["evaluate", f"policy={out}", "episodes=2", "num_envs=2"]) == 0
    assert "policy on pybullet/vision_hover:max_episode_steps=12,px=16" in capsys.readouterr().out
    assert main(["run", f"bundle={out / 'bundle'}", "episodes=1"]) == 0
    film = out / "view.mp4"
    env = "env=pybullet/vision_hover:max_episode_steps=12,px=16"
    assert main(["view", env, f"policy={out / 'bundle'}", f"out={film}"]) == 0
    assert film.stat().st_size > 0
    policy, settings = load_teacher(VisionConfig(teacher=f"{out}/teacher"), tmp_path / "unused")
    assert settings.integral is False
    assert policy.obs_spec["state"].shape == (18 + 32,)
    config = out / "teacher" / "config.yaml"
    config.write_text(config.read_text().replace("task: hover", "task: figure8"))
    with pytest.raises(CheckpointError, match="integral=false"):
        load_teacher(VisionConfig(teacher=f"{out}/teacher"), tmp_path / "unused")


def test_a_stopped_vision_continues_its_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same command with resume=true, as it says, also before the first checkpoint: without it the
    command is refused then.
    """
    asked: list[bool] = []

    def train(config: FlyConfig) -> None:
        asked.append(config.resume)
        if not config.resume:
            RunDir.create(config.out, config)
        raise KeyboardInterrupt("stopped")

    monkeypatch.setattr("robo_rl.flight.fly.runs.train_run", train)
    words = ["vision", *SMALL, f"out={tmp_path / 'vision'}"]
    assert [main(words), main(words), main([*words, "resume=true"])] == [130, 2, 130]
    assert asked == [False, True]
    said = capsys.readouterr().err
    assert (
        said.count("nothing was saved yet in") == said.count("the same command with resume=true starts") == 2
    )


@pytest.mark.long
def test_vision_stopped_at_its_students_trains_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The finished teacher is kept. Ctrl-C said only that what was committed is kept."""
    words = ["vision", *SMALL, "video=false", f"out={tmp_path / 'vision'}"]
    with monkeypatch.context() as patched:
        patched.setattr("robo_rl.flight.vision.runs.train", _interrupted)
        assert main(words) == 130
    assert "no student is saved in" in capsys.readouterr().err
    assert main([*words, "resume=true"]) == 0
    assert (tmp_path / "vision" / "bundle" / "policy.onnx").is_file()


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_names_the_students_that_are_saved(tmp_path: Path) -> None:
    """Each is saved before it is measured; a run that was stopped while it filmed has all of them."""
    again = "the same command with resume=true trains all of them again"
    assert left_in(tmp_path) == f"no student is saved in {tmp_path}; {again}"
    for seed in (0, 1):
        (tmp_path / f"seed{seed}").mkdir()
        (tmp_path / f"seed{seed}" / "policy.json").write_text("{}")
    assert left_in(tmp_path) == f"{tmp_path} has the students seed0, seed1; {again}"


def test_own_craft_is_named_with_its_checksum(tmp_path: Path) -> None:
    """A student of a craft file that has changed since is not flown as if nothing had happened."""
    mine = tmp_path / "mine.yaml"
    mine.write_text((FOLDER / "cf21.yaml").read_text())
    given = FlyConfig(task="hover", craft=str(mine), integral=False)
    config = with_craft_of(VisionConfig(teacher="runs/mine"), given)
    name = vision_setup(config, (cast(FlightPolicy, None), given)).env
    assert f"craft={mine}#" in name
    mine.write_text(re.sub(r"mass_kg: .*", "mass_kg: 0.04", mine.read_text()))
    with pytest.raises(ConfigError, match="has changed since the training"):
        make_env(name, 1).reset(iter([0]))


def test_craft_is_that_of_the_teacher() -> None:
    """Figures of one craft must not be stored under another's name."""
    given = FlyConfig(task="hover", craft="cf21", integral=False)
    assert with_craft_of(VisionConfig(teacher="runs/cf21"), given).craft == "cf21"
    with pytest.raises(ConfigError, match="craft=racer5 cannot learn from a teacher of craft cf21"):
        with_craft_of(VisionConfig(teacher="runs/cf21", craft="racer5"), given)


@pytest.mark.parametrize(("wrong", "words"), [("camera_hz=30", "whole number of control"), ("px=4", ">= 16")])
def test_mistakes_print_one_sentence(
    wrong: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before training."""
    given = [item for item in SMALL if not item.startswith(wrong.split("=")[0])]
    assert main(["vision", *given, wrong, f"out={tmp_path / 'vision'}"]) != 0
    captured = capsys.readouterr()
    assert words in captured.err + captured.out
    assert "Traceback" not in captured.err + captured.out
    assert not (tmp_path / "vision" / "teacher").exists()
