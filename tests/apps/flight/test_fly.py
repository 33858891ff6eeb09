"""`robo-rl fly` from nothing to a bundle and a C header, small; killed and resumed to the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from robo_rl.apps.cli.main import main
from robo_rl.apps.runs.metrics import read_metrics
from robo_rl.core.flight.level import UNITS

SMALL = [
    "task=hover",
    "flights=8",
    "horizon=4",
    "hidden=[8]",
    "history=1",
    "eval_flights=6",
    "video=false",
    "eval_s=0.2",
    "eager=true",
]


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "policy" / "weights.safetensors")


def same(first: Path, second: Path) -> bool:
    one, two = weights(first), weights(second)
    return one.keys() == two.keys() and all(one[key].equal(two[key]) for key in one)


def test_it_leaves_results_pictures_a_bundle_and_c(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that others call: results.json with error, terminations, CPU seconds and seeds; a table with
    baselines.
    """
    out = tmp_path / "fly"
    assert main(["fly", *SMALL, "updates=3", "seeds=2", "seed=4", f"out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert {
        "position_error_m",
        "terminated_fraction",
        "train_cpu_s",
        "compile_cpu_s",
        "seeds",
    } <= results.keys()
    assert results["seeds"] == [4, 5]
    assert [row["name"] for row in results["rows"]] == ["policy", "policy", "pid", "geometric"]
    printed = capsys.readouterr().out
    assert "PID" in printed
    assert "differs from torch" in printed
    for name in ("flight.png", "policy.h", "bundle/manifest.json", "bundle/policy.onnx"):
        assert (out / name).stat().st_size > 0
    header = " ".join((out / "policy.h").read_text().split())
    assert "full speed: 21702 RPM" in header  # a share of it is what an action commands
    assert "front right counter-clockwise, back right clockwise" in header
    assert "train for it: robo-rl fly craft=mine.yaml" in header.replace(" * ", " ")
    manifest = json.loads((out / "bundle" / "manifest.json").read_text())
    assert manifest["measured"]["n"] == 6
    assert "position m" in manifest["env"]["obs"]["state"]["unit"]
    held = manifest["measured"]["k"] > 0
    assert ("envelope" in manifest) == held  # what successful flights used, for the safety filter


def test_a_figure_eight_goes_the_same_way(tmp_path: Path) -> None:
    """The goal moves: its contract names the reference ahead, and its C header keeps no observation of its
    own.
    """
    out = tmp_path / "fly"
    given = ["task=figure8" if item == "task=hover" else item for item in SMALL]
    assert main(["fly", *given, "updates=2", f"out={out}"]) == 0
    manifest = json.loads((out / "bundle" / "manifest.json").read_text())
    assert manifest["env"]["name"] == "quad/figure8:history=1"
    assert main(["run", f"bundle={out / 'bundle'}", "episodes=1", "max_episode_steps=5"]) == 0
    assert manifest["env"]["obs"]["state"]["shape"] == [18 + 4 + 3 + 12]
    header = (out / "policy.h").read_text()
    assert "figure8_act" in header
    assert "figure8_observe" not in header


@pytest.mark.parametrize(
    ("task", "ahead", "fact"),
    [("waypoints", 3, "completed"), ("race", 9, "lap_time_s"), ("obstacles", 12, "hit_a_cylinder")],
)
def test_courses_go_the_same_way(task: str, ahead: int, fact: str, tmp_path: Path) -> None:
    """Points and gates, with latency: their own figures in results.json, body axes in the contract, a film,
    C.
    """
    out = tmp_path / "fly"
    given = [f"task={task}" if item == "task=hover" else item for item in SMALL if item != "video=false"]
    assert main(["fly", *given, "updates=2", "latency_s=0.02", f"out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert fact in results
    assert results["success"] == 0.0
    manifest = json.loads((out / "bundle" / "manifest.json").read_text())
    assert manifest["env"]["name"] == f"quad/{task}:history=1"
    assert main(["run", f"bundle={out / 'bundle'}", "episodes=1", "max_episode_steps=5"]) == 0
    assert manifest["env"]["obs"]["state"]["shape"] == [12 + 4 + ahead]
    assert (out / "flight.png").stat().st_size > 0
    assert (out / "flight.mp4").stat().st_size > 0
    assert f"{task}_act" in (out / "policy.h").read_text()


def test_thrust_and_rates_go_the_same_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What an autopilot takes over a link: the bundle says level, units and bounds; controllers fly the same
    link.
    """
    out = tmp_path / "fly"
    assert main(["fly", *SMALL, "updates=3", "level=rates", f"out={out}"]) == 0
    assert "C: not written" in capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    assert results["level"] == "rates"
    assert [row["name"] for row in results["rows"]] == ["policy", "pid", "geometric"]
    manifest = json.loads((out / "bundle" / "manifest.json").read_text())
    assert manifest["env"]["name"] == "quad/hover:history=1,level=rates"
    assert manifest["env"]["action"]["unit"] == UNITS["rates"]
    assert manifest["env"]["action"]["high"][1:] == [6.0, 6.0, 3.0]
    assert manifest["env"]["control_hz"] == 100.0
    assert not (out / "policy.h").exists()
    assert main(["run", f"bundle={out / 'bundle'}", "episodes=1", "max_episode_steps=5"]) == 0
    assert main(["transfer", f"run={out}", "episodes=2", "eval_s=0.1", f"out={tmp_path / 'moved'}"]) == 0


def test_killed_and_resumed_is_never_killed(tmp_path: Path) -> None:
    """SIGKILL in the second of two trainings: the same weights and the same log as an untouched run."""
    given = [*SMALL, "updates=12", "seeds=2", "horizon=2", "checkpoint_every=5"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["fly", *given, f"out={whole}"]) == 0
    command = [sys.executable, "-m", "robo_rl.apps.cli.main", "fly", *given, f"out={cut}"]
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        for _ in range(600):
            if (cut / "checkpoints" / "00000017").exists():
                break
            time.sleep(0.1)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not (cut / "results.json").exists()
    assert main(["fly", *given, f"out={cut}", "resume=true"]) == 0
    assert same(whole, cut)
    assert list(read_metrics(whole / "metrics.jsonl")) == list(read_metrics(cut / "metrics.jsonl"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("craft=cf12", "cf21"),
        ("task=hoover", "hover"),
        ("flights=0", "flights"),
        ("updats=3", "updates"),
        ("speed_m_s=9", "at most"),
        ("track=rign", "ring"),
        ("density=0.4", "Task hover has no density: leave it out, or fly one that has: obstacles."),
        ("train_density=0.4", "fly task=obstacles"),
        ("latency_s=0.005", "whole control steps"),
        ("gust_m_s=1", "no drag"),
        ("randomize=1", "no mass may vanish"),
        ("battery_s=inf", "finite"),
        ("level=rats", "rates"),
        ("rate_rad_s=4", "motors are told no rates"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(
    wrong: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, a non-zero exit code, and nothing written."""
    key = wrong.split("=")[0]
    given = [item for item in SMALL if not item.startswith(f"{key}=")]
    given[0] = {"speed_m_s": "task=figure8", "track": "task=race"}.get(key, given[0])
    assert main(["fly", *given, wrong, f"out={tmp_path / 'fly'}"]) != 0
    captured = capsys.readouterr()
    assert words in captured.err + captured.out
    assert "Traceback" not in captured.err + captured.out
