"""`robo-rl mission`: plans, flights, evaluation; mistakes are reported before the work."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from policies.checkpoint import save_policy
from policies.flight.policy import FlightPolicy
from robo_rl.apps.cli.main import main
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.mission import MissionConfig
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.mission.flights import fly_mission, fly_missions, load_tracker, plan_mission
from robo_rl.runs.run_dir import RunDir
from sim.flight.flights import Flights
from sim.flight.realism import Realism
from sim.tasks.stl.parse import parse
from sim.tasks.stl.scene import load_mission

FEW = ["episodes=2", "attempts=2", "iterations=60", "draws=20"]


def untrained(folder: Path, task: str, **settings: Any) -> str:
    """A run with an untrained policy."""
    config = FlyConfig(task=task, **{"history": 1} | settings)
    setting = FlightSetup.of(config)
    run = RunDir.create(folder, config)
    hover = 2.0 * setting.craft.hover_speed - 1.0
    save_policy(run.policy, FlightPolicy(setting.spec(), (8,), setting.scale(), hover), {})
    return f"run={folder}"


@pytest.mark.long
def test_mission_is_planned_flown_and_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PID follows the path and satisfies the formula; an untrained policy falls, which is reported."""
    run = untrained(tmp_path / "run", "figure8")
    out = tmp_path / "out"
    assert main(["mission", "missions=[reach]", run, *FEW, f"out={out}"]) == 0
    policy, pid = json.loads((out / "results.json").read_text())["flights"]
    assert pid["formula"] == "(F[0,6] a & G[0,6] arena)"
    assert pid["planned"]["k"] == pid["satisfied"]["k"] == 2
    assert min(pid["margin_m"]) > 0.1
    assert policy["satisfied"]["k"] == 0
    assert policy["margin_m"] == [None, None]
    assert (out / "missions.png").stat().st_size > 0
    printed = capsys.readouterr().out
    assert "PID" in printed
    assert "2/2" in printed


def test_a_stopped_mission_continues_its_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same command with resume=true, as the stopped training says; a finished one is kept."""
    asked: list[bool] = []

    def train(config: FlyConfig) -> None:
        asked.append(config.resume)
        if not config.resume:
            RunDir.create(config.out, config)
            raise KeyboardInterrupt("stopped")
        shutil.copytree(tmp_path / "run/policy", Path(config.out) / "policy")

    monkeypatch.setattr("robo_rl.flight.fly.runs.train_run", train)
    untrained(tmp_path / "run", "figure8", history=FlyConfig.history)
    few = ["episodes=1", "attempts=1", "iterations=1", "draws=1", "controllers=[]"]
    words = ["mission", "missions=[reach]", *few, f"out={tmp_path / 'out'}"]
    assert main(words) == 130
    capsys.readouterr()
    assert main(words) == 2
    assert "already holds a run. Add resume=true to continue it" in capsys.readouterr().err
    assert main([*words, "resume=true"]) == 0
    assert (tmp_path / "out/results.json").is_file()
    load_tracker(MissionConfig(resume=True), tmp_path / "out")
    assert asked == [False, True]


def test_flights_have_the_realism_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of latency_s=0.03 and gusts flies with both, and at level=rates over its link of 20 ms."""
    made: list[Realism] = []

    class Recorded(Flights):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self.realism)

    monkeypatch.setattr("robo_rl.flight.mission.flights.Flights", Recorded)
    mission = replace(load_mission("reach"), formula=parse("F[0,0.2] a"))
    for name, trained in {
        "late": {"latency_s": 0.03, "gust_m_s": 0.5, "craft": "cf21"},
        "link": {"level": "rates"},
    }.items():
        untrained(tmp_path / name, "figure8", **trained)
        config = MissionConfig(run=str(tmp_path / name), episodes=1, attempts=1, iterations=1, draws=1)
        fly_mission(config, plan_mission(config, mission), "policy", load_tracker(config, tmp_path))
    assert made == [Realism(latency_steps=3, gust_m_s=0.5), Realism(latency_steps=2)]


def test_the_progress_of_flights_is_counted_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two missions of 0.2 s and 0.1 s at 100 Hz by two pilots: 60 steps, not one long mission."""
    counted: list[int] = []

    def progress(total: int, label: str, unit: str) -> Any:
        counted.append(total)
        return nullcontext(SimpleNamespace(update=counted.append))

    monkeypatch.setattr("robo_rl.flight.mission.flights.progress", progress)
    untrained(tmp_path / "run", "figure8")
    config = MissionConfig(run=str(tmp_path / "run"), episodes=1, attempts=1, iterations=1, draws=1)
    missions = [replace(load_mission("reach"), formula=parse(f"F[0,{end_s}] a")) for end_s in (0.2, 0.1)]
    planned = [plan_mission(config, mission) for mission in missions]
    counted.clear()
    flights = fly_missions(config, planned, load_tracker(config, tmp_path))
    assert [flight.pilot for flight in flights] == ["policy", "pid", "policy", "pid"]
    assert counted == [60] + 60 * [1]


def test_mistakes_are_reported_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown missions, invalid formulas, policies of other tasks, impossible limits."""
    (tmp_path / "mine.yaml").write_text("text: x\nformula: F[0,6] (a\nplaces: [a]\n")
    hover = untrained(tmp_path / "hover", "hover")
    for given, words in (
        (["missions=[reech]"], "Did you mean 'reach'?"),
        (["missions=[]"], "names no mission"),
        ([f"missions=[{tmp_path / 'mine.yaml'}]"], "a '(' is not closed"),
        (
            ["missions=[reach]", hover],
            "holds a policy of task=hover, expected one of robo-rl fly task=figure8",
        ),
        (["missions=[reach]", hover, "most_speed_m_s=0"], "most_speed_m_s"),
        (["missions=[reach]", "controllers=[pidd]", hover], "pidd"),
    ):
        assert main(["mission", *given, f"out={tmp_path / 'out'}", "overwrite=true"]) == 2
        assert words in capsys.readouterr().err
        assert words == "most_speed_m_s" or not (tmp_path / "out").exists()
