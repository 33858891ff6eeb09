"""A full disk at the end of a training costs files, but no measurement: the table is printed first."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest

from robo_rl.apps import fly, swarm, vision
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.mission import MissionConfig
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.errors import DiskFullError
from robo_rl.flight.mission import report
from robo_rl.runs.run_dir import RunDir

FULL = DiskFullError("The disk is full.")


@pytest.fixture
def written_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces what a verb trains and measures by nothing, and what it writes by an error."""

    def replace(verb: ModuleType, **made: object) -> None:
        monkeypatch.setattr(verb, "write_outputs", Mock(side_effect=FULL))
        for name, value in made.items():
            monkeypatch.setattr(verb, name, Mock(return_value=value))

    return replace


def test_fly(written_by: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_by(fly, train_all=([], {}), fly_controllers={})
    with pytest.raises(DiskFullError):
        fly.main(FlyConfig(out=str(tmp_path / "run"), eval_episodes=4))
    assert "hover, 4 starts with disturbance" in capsys.readouterr().out


def test_swarm(written_by: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_by(swarm, train_all=([], None))
    with pytest.raises(DiskFullError):
        swarm.main(SwarmConfig(out=str(tmp_path / "run")))
    assert "100 unseen worlds of 15 s" in capsys.readouterr().out


def test_vision(written_by: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = VisionConfig(out=str(tmp_path / "run"), eval_episodes=4)
    written_by(vision, with_craft_of=config, vision_setup=None, train_students=([], {}), baseline_trials=[])
    with RunDir.create(tmp_path / "run", config) as run, pytest.raises(DiskFullError):
        vision._with_students(config, (Mock(), Mock()), run)
    assert "vision_hover in PyBullet, 4 starts" in capsys.readouterr().out


def test_mission(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(report, "write_json", Mock(side_effect=FULL))
    with RunDir.create(tmp_path / "run", MissionConfig()) as run, pytest.raises(DiskFullError):
        report.finish(run, [], [])
    assert "satisfied: margin above 0." in capsys.readouterr().out
