"""`robo-rl swarm` from scratch to a bundle, in small; killed and resumed to the same bits."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import pytest
from safetensors.torch import load_file
from torch import Tensor

from policies.deploy.bundle import load_bundle
from robo_rl.apps.cli.main import main
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.flight.swarm.runs import start_run, train_all
from robo_rl.flight.swarm.setting import SwarmSetting
from robo_rl.flight.swarm.training import make_training
from robo_rl.rl.differentiable.first_order import FirstOrder
from robo_rl.runs.metrics import read_metrics
from robo_rl.runs.run_dir import RunDir
from sim.flight.swarm.swarm import Swarm
from sim.tasks.swarm.world import ABSENT_M

SMALL = [
    "drones=3",
    "worlds=2",
    "horizon=3",
    "width=8",
    "token=4",
    "heads=2",
    "neighbours=2",
    "cylinders=2",
    "history=1",
    "train_s=0.2",
    "eval_episodes=3",
    "eval_s=0.1",
    "video=false",
    "eager=true",
]


def same(first: Path, second: Path) -> bool:
    one, two = (load_file(run / "policy" / "weights.safetensors") for run in (first, second))
    return one.keys() == two.keys() and all(one[key].equal(two[key]) for key in one)


def trained(given: list[str], out: Path, *, resume: bool) -> None:
    """Training and measurement without the report; bundle and plots have another test."""
    config = SwarmConfig(out=str(out), resume=resume, **settings(given))
    with start_run(config) as run:
        train_all(config, SwarmSetting.of(config), run)


def settings(given: list[str]) -> dict[str, Any]:
    """key=value as the command line reads it."""
    return {key: json.loads(value) for key, value in (item.split("=") for item in given)}


def test_densities_follow_the_curriculum() -> None:
    """The first worlds are empty. 60 are drawn ahead: after 15 replacements of four, new ones are as dense as
    the curriculum asks, on average half of 80 % at its end.
    """
    config = SwarmConfig(drones=1, worlds=4, replay=0.0, eager=True)
    training = make_training(config, SwarmSetting.of(config), 0)
    swarm = cast("FirstOrder", training.trainer).env
    assert isinstance(swarm, Swarm)
    assert (swarm.crowding, swarm.caution) == (0.0, 0.0)
    densities = []
    for crowding in (0.0, 1.0):
        swarm.crowding, flown = crowding, []
        for _ in range(30):
            flown.append(float((swarm.now.cylinders[0] < 0.5 * ABSENT_M).float().sum(1).mean()) / 64.0)
            swarm.now.since = swarm.now.until
            swarm.detach()
            swarm.step(swarm.idle)
        densities.append(fmean(flown[16:]))
    assert densities == [0.0, pytest.approx(0.4, abs=0.08)]


@pytest.mark.long
def test_swarm_writes_results_picture_video_and_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two seeds, two sizes of swarm: the table has a row for all and for each scenario; the graph equals
    torch.
    """
    out = tmp_path / "swarm"
    given = [item for item in SMALL if item != "video=false"]
    scenarios = "scenarios=[swap,pursuit]"
    assert (
        main(["swarm", *given, scenarios, "also=[5x40]", "updates=2", "seeds=2", "seed=4", f"out={out}"]) == 0
    )
    results = json.loads((out / "results.json").read_text())
    assert results["seeds"] == [4, 5]
    rows = [(row["seed"], row["drones"], row["scenario"], row["success"]["n"]) for row in results["rows"]]
    one = [(3, "all", 9), (3, "swap", 6), (3, "pursuit", 3), (5, "all", 5), (5, "swap", 5)]
    assert rows == [(seed, *row) for seed in (4, 5) for row in one]
    printed = " ".join(capsys.readouterr().out.split())
    assert "hit cylinder" in printed
    assert f"{results['c']['macs']} multiply-adds" in printed
    assert "differs from torch by" in printed
    for name in ("swarm.png", "swarm.mp4", "bundle/policy.onnx", "policy.h"):
        assert (out / name).stat().st_size > 0
    bundle = load_bundle(out / "bundle")
    assert bundle.manifest["measured"]["n"] == 9
    assert 3.0 <= bundle.manifest["measured"]["effective_n"] <= 9.0  # three worlds of three drones
    assert bundle.manifest["graphs"][0]["parity"] < 1e-5
    assert main(["export", f"policy={out / 'policy'}", f"out={tmp_path / 'again'}"]) == 0
    said = capsys.readouterr().out  # `evaluate` and `run`, as for other policies, refuse a swarm
    assert f"Next:   robo-rl transfer bundle={tmp_path / 'again'}" in said
    assert "robo-rl evaluate" not in said


@pytest.mark.parametrize("engine", ["quad", "pybullet"])
def test_killed_and_resumed_equals_uninterrupted(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two trainings is killed between two checkpoints: weights and log equal an uninterrupted
    run's.
    """
    if engine == "pybullet":
        pytest.importorskip("pybullet")
    given = [
        *SMALL,
        f'engine="{engine}"',
        "updates=5",
        "seeds=2",
        "horizon=2",
        "checkpoint_every=2",
        "eval_episodes=1",
        "eval_s=0.2",
    ]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    trained(given, whole, resume=False)
    with monkeypatch.context() as patch:
        update, calls = FirstOrder.update, count(1)

        def dies(self: FirstOrder) -> dict[str, Tensor]:
            if next(calls) == 5 + 4:
                raise MemoryError
            return update(self)

        patch.setattr(FirstOrder, "update", dies)
        with pytest.raises(MemoryError):
            trained(given, cut, resume=False)
    assert RunDir(cut).latest() == (8, cut / "checkpoints" / "00000008")
    trained(given, cut, resume=True)
    assert same(whole, cut)
    assert list(read_metrics(whole / "metrics.jsonl")) == list(read_metrics(cut / "metrics.jsonl"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("density=1.5", "0 ... 1"),
        ("drones=60", "free cells"),
        ("high_m=12", "are out of range"),
        ("scenarios=[swop]", "swap"),
        ("also=[many]", "32x80"),
        ("also=[60x80]", "free cells"),
        ("downwash=true", "cf2x_gym"),
        ("craft=cf12", "cf21"),
        ("token=5", "multiple of heads"),
        ("replay=2", "from 0 to 1"),
    ],
)
def test_mistakes_print_one_sentence(
    wrong: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback and a non-zero exit code."""
    key = wrong.split("=")[0]
    given = [item for item in SMALL if not item.startswith(f"{key}=")]
    assert main(["swarm", *given, wrong, f"out={tmp_path / 'swarm'}"]) != 0
    captured = capsys.readouterr()
    assert words in captured.err + captured.out
    assert "Traceback" not in captured.err + captured.out


def test_contract_names_the_observations() -> None:
    """Neighbours are observed by bearings, without unit, not by positions in metres; the goal is bent."""
    unit = SwarmSetting.of(SwarmConfig()).spec().obs["state"].unit
    assert "bent towards 1.5 m" in unit
    assert (
        "6 drones (bearing 1, relative velocity m/s, nearness 1), 4 cylinders (bearing 1, nearness 1)" in unit
    )
