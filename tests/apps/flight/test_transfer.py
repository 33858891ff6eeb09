"""`robo-rl transfer` from a run and from a bundle: table, results.json, plots; mistakes in one sentence."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from hardware.checks.faulty_disk import full_disk
from policies.checkpoint import load_policy, save_policy
from policies.flight.policy import FlightPolicy
from robo_rl.apps.cli.main import main
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import ConfigError
from robo_rl.flight.flight_run import load_flight_run
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.rows import Drop, TransferRow
from robo_rl.flight.transfer.report import next_step
from robo_rl.runs.run_dir import RunDir
from sim.flight.trial import Trial

pytest.importorskip("pybullet")

SMALL = ["flights=8", "horizon=2", "updates=1", "hidden=[8]", "eval_episodes=4", "eval_s=0.2", "video=false",
         "eager=true"]  # fmt: skip
FEW = ["episodes=4", "eval_s=0.3"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hover policy without integral from `robo-rl fly`; untrained ones for figure-eight and waypoints."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["fly", "task=hover", "integral=false", "history=2", *SMALL, f"out={folder / 'hover'}"]) == 0
    untrained(folder / "eight", FlyConfig(task="figure8", speed_m_s=1.5, history=1, eval_s=0.2))
    untrained(folder / "room", FlyConfig(task="waypoints", history=1, eval_s=0.2))
    return folder


def untrained(folder: Path, config: FlyConfig) -> None:
    setting = FlightSetup.of(config)
    hover = 2.0 * setting.craft.hover_speed - 1.0
    run = RunDir.create(folder, config)
    save_policy(
        run.policy, FlightPolicy(setting.spec(), (8,), setting.scale(), hover), {"settings": asdict(config)}
    )


@pytest.mark.long
def test_transfer_flies_in_both_engines(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rows per pilot on the same starts, with interval, difference and p; pictures and films."""
    out = tmp_path / "transfer"
    given = [
        "controllers=[pid]",
        "pretty=true",
        "size=[128,96]",
        "height_m=0.4",
        "above_m=0.8",
        "randomize=0.1",
    ]
    assert main(["transfer", f"run={runs / 'hover'}", *FEW, *given, f"out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    rows = [(row["pilot"], row["engine"]) for row in results["rows"]]
    assert rows == [(pilot, engine) for pilot in ("policy", "pid") for engine in ("quad", "pybullet")]
    assert all(row["held"]["n"] == 4 for row in results["rows"])
    held = [row["held"]["success"] for row in results["rows"][:2]]
    assert results["drop_points"] == pytest.approx(100.0 * (held[0] - held[1]))
    assert 0.0 <= results["mcnemar_p"] <= 1.0
    assert set(results["scene"]["borrowed"]) >= {"ground_effect", "downwash"}
    printed = capsys.readouterr().out
    assert "pybullet" in printed
    assert "difference" in printed
    for name in ("transfer.png", "transfer.mp4", "pybullet.mp4"):
        assert (out / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("place", "history", "integral"), [("hover/bundle", 2, False), ("eight/policy", 1, True)]
)
def test_transfer_of_a_bundle_without_its_run(
    place: str, history: int, integral: bool, runs: Path, tmp_path: Path
) -> None:
    """The bundle's note holds the training settings; the weights are the trained ones."""
    moved = shutil.copytree(runs / place, tmp_path / "moved")
    flown = load_flight_run(TransferConfig(**{"bundle" if "bundle" in place else "run": str(moved)}))  # type: ignore[arg-type]
    assert (flown.senses.history, flown.senses.integral) == (history, integral)
    assert flown.task.moves == place.startswith("eight")
    assert flown.craft.name == "cf2x_l2f"
    trained = load_policy(runs / place.split("/")[0] / "policy")
    assert isinstance(trained, torch.nn.Module)
    for key, value in flown.policy.state_dict().items():
        assert value.equal(trained.state_dict()[key])


def test_transfer_figure8_without_effects(runs: Path, tmp_path: Path) -> None:
    """Other tasks work alike; "none" is no effect."""
    given = [
        f"run={runs / 'eight'}",
        "speed_m_s=1",
        *FEW,
        "effects=none",
        "video=false",
        f"out={tmp_path / 'out'}",
    ]
    assert main(["transfer", *given]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["task"] == "figure8"
    assert results["scene"]["effects"] == []
    assert not (tmp_path / "out" / "transfer.mp4").exists()


def test_transfer_in_a_room(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The floor is the room's, which the results state, and success is called what the task calls it."""
    out = tmp_path / "out"
    given = [f"run={runs / 'room'}", *FEW, "video=false", f"out={out}"]
    assert main(["transfer", *given]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "floor of the room" in printed
    assert "completed: passed all points within the radius, in time" in printed
    assert json.loads((out / "results.json").read_text())["scene"]["floor_m"] == 0.0
    assert main(["transfer", *given, "height_m=0.3"]) == 2
    assert "whose floor is at z = 0 m" in capsys.readouterr().err


def test_a_full_disk_costs_the_files_but_not_the_table(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flights are minutes of work; their table used to be lost with results.json."""
    given = [f"run={runs / 'eight'}", *FEW, "effects=none", "video=false", f"out={tmp_path / 'out'}"]
    with full_disk(tmp_path, room_bytes=100):
        assert main(["transfer", *given]) == 4
    said = capsys.readouterr()
    assert "The disk is full" in said.err
    assert "4 starts, the same in both engines" in said.out


def test_an_unusable_out_is_refused_before_the_flights(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("robo_rl.apps.transfer.measure", None)
    (tmp_path / "file").write_text("")
    assert main(["transfer", f"run={runs / 'eight'}", *FEW, f"out={tmp_path / 'file'}"]) == 2
    assert "is a file, expected a folder" in " ".join(capsys.readouterr().err.split())


def test_transfer_uses_the_settings_of_the_training(runs: Path) -> None:
    """Speed of the figure and length of the episodes are those of training by default."""
    flown = load_flight_run(TransferConfig(run=str(runs / "eight")))
    assert flown.trained.speed_m_s == 1.5
    assert flown.task.max_steps == 20
    slower = load_flight_run(TransferConfig(run=str(runs / "eight"), speed_m_s=1.0, eval_s=1.0))
    assert slower.trained.speed_m_s == 1.0
    assert slower.task.max_steps == 100
    with pytest.raises(ConfigError, match="Task hover has no speed_m_s"):
        load_flight_run(TransferConfig(run=str(runs / "hover"), speed_m_s=1.0))


def row(engine: str, *held: bool) -> TransferRow:
    """Result of the policy, by start."""
    none = torch.zeros(1, 3, len(held))
    won = torch.tensor(held)
    return TransferRow("policy", engine, Trial(none, none, none, none, none, none, torch.zeros(1), ~won, won))


@pytest.mark.parametrize(
    ("home", "away", "says"),
    [
        (True, True, "robo-rl run bundle=RUN/bundle"),
        (False, False, "robo-rl fly config=RUN/config.yaml updates=2 out=RUN-again   (train for longer)"),
        (True, False, "robo-rl fly config=RUN/config.yaml randomize=0.1 out=RUN-again   (vary the craft in"),
    ],
)
def test_the_next_step_suits_the_difference(home: bool, away: bool, says: str, runs: Path) -> None:
    config = TransferConfig(run=str(runs / "hover"))
    rows = row("quad", *[home] * 20), row("pybullet", *[away] * 20)
    said = next_step(config, load_flight_run(config), rows[0], Drop.of(*rows))
    assert said.startswith(says.replace("RUN", str(runs / "hover")))


@pytest.mark.parametrize(
    ("starts", "home", "away", "says"),
    [
        (20, 1, 1, " updates=2 "),
        (20, 9, 12, " updates=2 "),
        (20, 3, 1, " updates=2 "),
        (3, 3, 0, " randomize=0.1 "),  # no significant loss, of three starts
        (20, 10, 10, "robo-rl run bundle="),
    ],
)
def test_a_policy_that_seldom_succeeds_is_trained_again(
    starts: int, home: int, away: int, says: str, runs: Path
) -> None:
    """One success of 20 was enough for the advice to go on to a robot."""
    config = TransferConfig(run=str(runs / "hover"))
    counts = {"quad": home, "pybullet": away}
    rows = [row(engine, *[i < count for i in range(starts)]) for engine, count in counts.items()]
    assert says in next_step(config, load_flight_run(config), rows[0], Drop.of(*rows))


@pytest.mark.parametrize(("trained", "advised"), [(0.1, 0.2), (0.2, 0.3), (0.38, None)])
def test_a_loss_advises_a_variation_that_the_craft_can_have(
    trained: float, advised: float | None, tmp_path: Path
) -> None:
    """Above randomize=0.38, the heaviest and weakest cf2x_l2f cannot take off; there, a longer training is
    advised.
    """
    untrained(tmp_path / "run", FlyConfig(task="hover", craft="cf2x_l2f", randomize=trained, updates=9))
    config = TransferConfig(run=str(tmp_path / "run"))
    rows = row("quad", *[True] * 20), row("pybullet", *[False] * 20)
    flown = load_flight_run(config)
    said = next_step(config, flown, rows[0], Drop.of(*rows))
    if advised is None:
        assert " updates=18 " in said
        assert "randomize" not in said
    else:
        assert f" randomize={advised:g} " in said
        FlightSetup.of(replace(flown.trained, randomize=advised))


def test_the_advised_training_is_for_the_craft_that_was_flown(tmp_path: Path) -> None:
    """The settings of the run name that of its training, for which another variation is allowed."""
    untrained(tmp_path / "run", FlyConfig(task="hover", craft="cf2x_l2f", eval_s=0.2))
    config = TransferConfig(run=str(tmp_path / "run"), craft="cf21")
    rows = row("quad", *[True] * 20), row("pybullet", *[False] * 20)
    said = next_step(config, load_flight_run(config), rows[0], Drop.of(*rows))
    assert said.startswith(f"robo-rl fly config={tmp_path / 'run/config.yaml'} craft=cf21 randomize=0.1 ")


def test_the_advised_training_is_for_the_speed_that_was_flown(tmp_path: Path) -> None:
    """Trained at 1.5 m/s, flown at 2.5 m/s in longer episodes."""
    untrained(tmp_path / "run", FlyConfig(task="figure8", speed_m_s=1.5, eval_s=0.2))
    config = TransferConfig(run=str(tmp_path / "run"), speed_m_s=2.5, eval_s=0.4)
    rows = row("quad", *[True] * 20), row("pybullet", *[False] * 20)
    said = next_step(config, load_flight_run(config), rows[0], Drop.of(*rows))
    assert said.startswith(
        f"robo-rl fly config={tmp_path / 'run/config.yaml'} speed_m_s=2.5 eval_s=0.4 randomize="
    )


def test_a_run_given_as_the_current_folder_is_trained_again_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run=. used to name a hidden folder in the run."""
    untrained(tmp_path / "run", FlyConfig(task="hover", eval_s=0.2))
    monkeypatch.chdir(tmp_path / "run")
    config = TransferConfig(run=".")
    rows = row("quad", *[False] * 20), row("pybullet", *[False] * 20)
    said = next_step(config, load_flight_run(config), rows[0], Drop.of(*rows))
    assert f" out={tmp_path.resolve() / 'run-again'} " in said


def test_only_the_policy_of_the_bundle_is_flown_with_it(tmp_path: Path) -> None:
    """A run with several seeds holds the bundle of its first one; others need a run of their own."""
    run = tmp_path / "run"
    torch.manual_seed(1)
    untrained(run, FlyConfig(task="hover", eval_s=0.2))
    for copy in (run / "seed1", run / "bundle"):
        shutil.copytree(run / "policy", copy)
    (run / "bundle" / "manifest.json").write_text("{}")
    policy = load_policy(run / "policy")
    assert isinstance(policy, FlightPolicy)
    with torch.no_grad():
        next(policy.parameters()).add_(1.0)
    save_policy(run / "seed2", policy, {"seed": 2})
    rows = row("quad", *[True] * 20), row("pybullet", *[True] * 20)
    said = []
    for name in ("", "seed1", "seed2"):
        config = TransferConfig(run=str(run / name))
        said.append(next_step(config, load_flight_run(config), rows[0], Drop.of(*rows)))
    again = f"robo-rl fly config={run}/config.yaml seed=2 seeds=1 out={run}-seed2   (the same policy, with a"
    assert said[:2] == [f"robo-rl run bundle={run}/bundle"] * 2
    assert said[2].startswith(again)


def test_difference_matches_hand_computation() -> None:
    """3 of 4 held in the first engine, 1 of 4 in the second, one start the other way round: 50 points, p = 2
    (1 + 3) / 8 cut at 1.
    """
    drop = Drop.of(row("quad", True, True, True, False), row("pybullet", False, False, False, True))
    assert drop.points == 50.0
    assert (drop.test.only_first, drop.test.only_second) == (3, 1)
    assert drop.test.p_value == pytest.approx(0.625)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "run="),
        (["run=nowhere"], "does not exist"),
        (["run=RUN", "bundle=RUN/bundle"], "not both"),
        (["run=RUN", "effects=wind"], "downwash"),
        (["run=RUN", "engine=gazebo"], "pybullet"),
        (["run=RUN", "controllers=[pd]"], "pid"),
        (["run=RUN", "history=3"], "history"),
        (["run=RUN", "aero=cf12"], "cf21"),
        (["run=RUN", "randomize=1"], "vanish"),
        (["run=RUN", "pretty=true", "size=[640]"], "two sides"),
        (["run=RUN", "engines=mujoco,pybullet"], "for policies of tasks in scenes, not for a flight"),
    ],
)
def test_mistakes_print_one_sentence(
    given: list[str], words: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, a non-zero exit code, nothing written."""
    given = [item.replace("RUN", str(runs / "hover")) for item in given]
    assert main(["transfer", *given, *FEW, f"out={tmp_path / 'out'}"]) != 0
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_missing_pybullet_error_names_the_extra(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before the first flight."""
    monkeypatch.setitem(sys.modules, "pybullet", None)
    assert main(["transfer", f"run={runs / 'hover'}", *FEW]) != 0
    assert "pip install 'robo-rl[pybullet]'" in capsys.readouterr().err
