"""`robo-rl fly` from scratch to a bundle and a C header, in small; killed and resumed to the same bits."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from policies.checkpoint import save_policy
from policies.flight.policy import FlightPolicy
from robo_rl.apps.cli.main import main
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import ShacMethod, Td3Method
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.level import UNITS
from robo_rl.flight.flight_run import load_flight_run
from robo_rl.flight.fly.recipe import resolved
from robo_rl.flight.fly.report import next_steps
from robo_rl.flight.fly.runs import fly_setup, start_run, train_run
from robo_rl.flight.own_files import own_numbers
from robo_rl.rl.differentiable.first_order import FirstOrder
from robo_rl.runs.metrics import read_metrics
from robo_rl.runs.run_dir import RunDir
from sim.engines.quad.craft import FOLDER, load_craft
from sim.registry import make_env
from sim.tasks.flight.hover import HoverTask

SMALL = [
    "task=hover",
    "flights=8",
    "horizon=4",
    "hidden=[8]",
    "history=1",
    "eval_episodes=6",
    "video=false",
    "eval_s=0.2",
    "eager=true",
]


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "policy" / "weights.safetensors")


def same(first: Path, second: Path) -> bool:
    one, two = weights(first), weights(second)
    return one.keys() == two.keys() and all(one[key].equal(two[key]) for key in one)


def test_fly_writes_results_pictures_bundle_and_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """results.json with error, terminations, CPU seconds and seeds; a table with baselines."""
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


def test_fly_figure8(tmp_path: Path) -> None:
    """The goal moves: the contract names the reference ahead, and the C header has no code for the
    observation.
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "ahead", "fact"),
    [("waypoints", 3, "completed"), ("race", 9, "lap_time_s"), ("obstacles", 12, "hit_a_cylinder")],
)
def test_fly_waypoints_and_race(task: str, ahead: int, fact: str, tmp_path: Path) -> None:
    """Waypoints and gates, with latency: their own figures in results.json, body axes in the contract, a
    video, C.
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


@pytest.mark.long
def test_fly_level_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands over a link: the bundle states level, units and limits; controllers use the same link."""
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
    for settings in (RunDir.open(out).config(), manifest["training"]["settings"]):
        assert (settings["lr"], settings["latency_s"], settings["value"]) == (0.015, 0.02, False)
    assert not (out / "policy.h").exists()
    assert main(["run", f"bundle={out / 'bundle'}", "episodes=1", "max_episode_steps=5"]) == 0
    assert main(["transfer", f"run={out}", "episodes=2", "eval_s=0.1", f"out={tmp_path / 'moved'}"]) == 0


def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two trainings is killed between two checkpoints: weights and log equal an uninterrupted
    run's.
    """
    given = FlyConfig(
        task="hover", flights=8, horizon=2, hidden=[8], history=1, updates=12, seeds=2, checkpoint_every=5,
        eval_episodes=6, eval_s=0.2, eager=True,
    )  # fmt: skip
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train_run(replace(given, out=str(whole)))
    with monkeypatch.context() as patch:
        update, calls = FirstOrder.update, count(1)

        def dies(self: FirstOrder) -> dict[str, Tensor]:
            if next(calls) == 12 + 8:
                raise MemoryError
            return update(self)

        patch.setattr(FirstOrder, "update", dies)
        with pytest.raises(MemoryError):
            train_run(replace(given, out=str(cut)))
    assert RunDir(cut).latest() == (15, cut / "checkpoints" / "00000015")
    assert not (cut / "policy").exists()
    train_run(replace(given, out=str(cut), resume=True))
    assert same(whole, cut)
    assert list(read_metrics(whole / "metrics.jsonl")) == list(read_metrics(cut / "metrics.jsonl"))


def test_an_own_craft_is_recorded_and_not_changed_unseen(tmp_path: Path) -> None:
    """Run and environment name the file with a checksum; a file with other numbers is refused."""
    mine = tmp_path / "mine.yaml"
    mine.write_text((FOLDER / "cf21.yaml").read_text())
    config = FlyConfig(craft=str(mine), history=1, hidden=[8], out=str(tmp_path / "run"), eval_s=0.2)
    pinned, setting = fly_setup(config)
    assert re.fullmatch(rf"{mine}#[0-9a-f]{{8}}", pinned.craft)
    assert setting.spec().name == f"quad/hover:craft={pinned.craft},history=1"
    assert own_numbers(pinned)["craft_numbers"]["mass_kg"] == load_craft(str(mine)).mass_kg
    with start_run(pinned):
        pass
    note = {"settings": asdict(pinned)}
    hover = 2.0 * setting.craft.hover_speed - 1.0
    save_policy(
        RunDir(tmp_path / "run").policy, FlightPolicy(setting.spec(), (8,), setting.scale(), hover), note
    )
    assert load_flight_run(TransferConfig(run=config.out)).craft == setting.craft
    assert fly_setup(pinned)[0] == pinned
    mine.write_text("# heavier\n" + mine.read_text())
    assert fly_setup(config)[0] == pinned  # a comment is no number
    mine.write_text(re.sub(r"mass_kg: .*", "mass_kg: 0.04", mine.read_text()))
    for refused in (
        lambda: fly_setup(pinned),
        lambda: load_flight_run(TransferConfig(run=config.out)),
        lambda: make_env(setting.spec().name, 1),
    ):
        with pytest.raises(ConfigError, match=r"mine\.yaml has changed since the training"):
            refused()
    mine.rename(tmp_path / "moved.yaml")
    with pytest.raises(ConfigError, match=r"does not exist.*policy\.json holds them"):
        load_flight_run(TransferConfig(run=config.out))
    (tmp_path / "moved.yaml").rename(mine)
    with pytest.raises(ConfigError, match="craft"):
        start_run(replace(fly_setup(config)[0], resume=True))


def test_resolved_defaults_are_recorded() -> None:
    """Run and bundle record the resolved values, not "0: the default of the task"."""
    linked = resolved(FlyConfig(task="hover", level="rates"), HoverTask())
    assert (linked.updates, linked.horizon, linked.lr) == (900, 32, 0.015)
    assert (linked.value, linked.bootstrap_terminated, linked.latency_s) == (False, False, 0.02)
    assert (linked.eval_s, linked.w_action_rate) == (5.0, HoverTask().w_action_rate)
    assert resolved(linked, HoverTask()) == linked
    shac = resolved(FlyConfig(task="hover", method=ShacMethod()), HoverTask())
    assert (shac.updates, shac.horizon, shac.value) == (900, 24, True)
    assert resolved(FlyConfig(method=Td3Method()), HoverTask()).updates == Td3Method().rounds


def test_policy_without_a_success_has_no_envelope() -> None:
    """Without a success there is no flight envelope, so no robot flies the bundle; course tasks have no
    link.
    """
    config = FlyConfig(task="hover", level="rates", updates=700, out="runs/fly")
    failed = next_steps(config, success=0.0)
    assert "no flight envelope" in failed
    assert "updates=1400" in failed
    assert "bundle=" not in failed
    poor = next_steps(config, success=0.01)
    assert poor.startswith("Only 1% of the measured flights succeeded.\nNext:   robo-rl fly ")
    assert "bundle=" not in poor
    assert "robo-rl contract bundle=runs/fly/bundle" in next_steps(config, success=0.5)
    assert "contract" not in next_steps(replace(config, task="race"), success=1.0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("craft=cf12", "cf21"),
        ("task=hoover", "hover"),
        ("flights=-1", "flights"),
        ("updats=3", "updates"),
        ("speed_m_s=9", "at most"),
        ("track=rign", "ring"),
        ("density=0.4", "Task hover has no density: leave it out, or choose a task that has: obstacles."),
        ("train_density=0.4", "fly task=obstacles"),
        ("latency_s=0.005", "whole control steps"),
        ("gust_m_s=1", "no drag"),
        ("randomize=1", "no mass may vanish"),
        ("battery_s=inf", "finite"),
        ("level=rats", "rates"),
        ("rate_rad_s=4", "has no rates"),
    ],
)
def test_mistakes_print_one_sentence(
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
