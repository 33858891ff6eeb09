"""`robo-rl runs`: success, settings that differ, and damaged runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from robo_rl.apps.cli.main import main
from robo_rl.apps.list_runs import columns
from robo_rl.conf.distill import DistillVerb
from robo_rl.runs.history import PastRun, differing
from robo_rl.runs.run_dir import RunDir
from tests.apps.written_runs import past, write_run


def test_runs_counts_the_flights_of_all_trained_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """results.json of `fly`: the flights of two trained policies count, those of a controller do not."""
    write_run(tmp_path / "fly", 1, [0])
    held = [("policy", 5), ("policy", 9), ("pid", 10)]
    rows = [{"name": name, "held": {"k": k, "n": 10}} for name, k in held]
    (tmp_path / "fly" / "results.json").write_text(json.dumps({"rows": rows}))
    assert main(["runs", f"path={tmp_path}"]) == 0
    assert "14/20 = 70 %" in capsys.readouterr().out


def test_runs_shows_success_and_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, and as JSON lines for scripts."""
    write_run(tmp_path / "a", 1, [2, 9])
    write_run(tmp_path / "b", 2, [2, 4])
    assert main(["runs", f"path={tmp_path}", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["success"]["k"], first["settings"]) == (9, {"seed": 1})
    assert (second["success"]["n"], second["settings"]) == (10, {"seed": 2})
    assert main(["runs", f"path={tmp_path}"]) == 0
    assert "9/10 = 90 %" in capsys.readouterr().out
    assert main(["runs", f"path={tmp_path / 'nothing'}"]) == 2
    assert "nothing does not exist; the nearest existing folder is" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["runs", f"path={tmp_path / 'empty'}"]) == 2
    assert "is an empty folder, and no run is in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("results.json", '{"a":', "results.json is not valid JSON"),
        ("results.json", '{"policy": {"rate": {"k": 3}}}', "cannot be read (KeyError: 'n')"),
        ("results.json", '{"policy": {"rate": {"k": 3, "n": 0}}}', "n >= 1"),
        ("curve.json", '{"env_steps": 5}', "cannot be read (KeyError"),
        ("config.yaml", "- 1", "config.yaml holds no settings"),
    ],
)
def test_a_damaged_run_hides_no_other(
    name: str, content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sound runs are listed, and a sentence names the damaged one; scripts find it, too."""
    for each in ("a", "b", "c"):
        write_run(tmp_path / each, 1, [2, 9])
    (tmp_path / "b" / name).write_text(content)
    assert main(["runs", f"path={tmp_path}"]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == [str(tmp_path / "a"), str(tmp_path / "c")]
    assert said.err.startswith(f"{tmp_path / 'b'} is damaged and not listed: ")
    assert words in said.err
    assert main(["runs", f"path={tmp_path}", "json=true"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["path"][-1] for line in said.out.splitlines()] == ["a", "c"]
    assert words in said.err
    assert main(["runs", f"path={tmp_path / 'b'}"]) == 2
    assert words in capsys.readouterr().err


def test_runs_without_a_success_show_their_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Listed, as JSON and compared: such an environment never succeeds, which is not 0 %."""
    for name, total in (("a", -10.0), ("b", -30.0)):
        write_run(tmp_path / name, 1, [0])
        measured = {"rate": {"k": 0, "n": 2}, "returns": [total, total - 2.0], "reports_success": False}
        (tmp_path / name / "results.json").write_text(json.dumps({"policy": measured}))
    assert main(["runs", f"path={tmp_path}"]) == 0
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()] == [
        ["mean", "return", "-11"],
        ["mean", "return", "-31"],
    ]
    assert main(["runs", f"path={tmp_path / 'a'}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["success"], shown["mean_return"]) == (None, -11.0)
    assert main(["compare", str(tmp_path), str(tmp_path / "a"), f"out={tmp_path / 'plot'}"]) == 0
    assert "mean return -21, mean of 2 runs" in capsys.readouterr().out


def test_returns_that_are_not_finite_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mean is of the others, in `runs` and `compare`; without any other, there is none."""
    for name, returns in (("a", [-10.0, None, -12.0]), ("b", [None]), ("noted", [])):
        write_run(tmp_path / name, 1, [0])
        measured = {"rate": None, "returns": returns, "reports_success": False}
        (tmp_path / name / "results.json").write_text(json.dumps({"policy": measured}))
    (tmp_path / "noted" / "policy" / "evaluation.json").write_text('{"mean_return": null, "n": 3}')
    assert main(["runs", f"path={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "mean return -11, without 1 return not finite" in shown
    assert shown.count("mean return not finite") == 2
    assert main(["compare", str(tmp_path / "a"), str(tmp_path), f"out={tmp_path / 'plot'}"]) == 0
    assert "mean return -11, mean of 1 run, without 3 returns not finite" in capsys.readouterr().out


def test_runs_shows_the_steps_that_were_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`env_steps` and `num_envs` of the command line replace the method's own, which are not shown then."""
    own = {"name": "sac", "env_steps": 1_000_000, "default_envs": 4}
    for name, given in {"own": {}, "few": {"env_steps": 2000, "method": own | {"default_envs": 8}}}.items():
        write_run(tmp_path / name, 1, [2, 9])
        settings = {"seed": 1, "method": own, "env_steps": None, "num_envs": 1} | given
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(settings))
    assert main(["runs", f"path={tmp_path}"]) == 0
    shown = [line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown == ["env_steps=2000", "env_steps=1000000"]


def test_runs_of_several_verbs_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run is comes first; a setting that is equal in all runs that have it is not shown."""
    many = {f"learner.k{i}": 1 for i in range(9)}
    for name, settings in {
        "base": {"net": {"lr": 1}, "data": "data/a", "seed": 1, "steps": 9},
        "res": {"net": {"lr": 1}, "base": "runs/base", "method": {"name": "residual"} | many, "seed": 1},
        "steer": {"base": "runs/base", "method": {"name": "steering"} | dict.fromkeys(many, 2), "seed": 1},
    }.items():
        write_run(tmp_path / name, 1, [2, 9])
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(settings | {"out": name}))
    assert main(["runs", f"path={tmp_path}", "settings=3"]) == 0
    shown = [line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == "data=data/a"
    assert shown[1].startswith("method=residual base=runs/base method.learner.k0=1 (and 8 more)")
    assert shown[2].startswith("method=steering base=runs/base method.learner.k0=2 (and 8 more)")


def test_runs_compares_the_settings_of_one_verb_alone() -> None:
    """Defaults of different verbs differ, and nobody chose them; what a run is made of is always shown."""
    base = past("base", "train", data="data/peg", steps=2000, num_envs=1, **{"net.name": "mlp"})
    again = past("again", "train", data="data/peg", steps=5000, num_envs=1, **{"net.name": "mlp"})
    head = past("head", "distill", teacher="base", steps=4000, num_envs=10, **{"net.name": "unet1d"})
    assert differing([base, again, head]) == [
        {"data": "data/peg", "steps": 2000},
        {"data": "data/peg", "steps": 5000},
        {"teacher": "base"},
    ]


def test_runs_shows_verb_and_day_where_they_fit() -> None:
    runs = [past("runs/base", "train"), past("runs/tuned", "finetune")]
    outcome = f"{'not measured':<28}"
    wide = [f"runs/base   train     {outcome}  2026-05-01", f"runs/tuned  finetune  {outcome}  2026-05-01"]
    assert columns(runs, 80) == wide
    assert [line.split()[-1] for line in columns(runs, 60)] == ["measured", "measured"]
    assert columns([past("runs/old", "")], 80) == [f"runs/old  {outcome}  2026-05-01"]


def test_a_run_records_its_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of older versions, which did not, are told apart by their settings."""
    with RunDir.create(tmp_path / "new", DistillVerb(teacher="t", out="o")):
        pass
    assert PastRun.read(tmp_path / "new").verb == "distill"
    write_run(tmp_path / "old", 1, [0])
    (tmp_path / "old/config.yaml").write_text("{final_episodes: 3, data: null}")
    assert PastRun.read(tmp_path / "old").verb == "finetune"
    assert main(["runs", f"path={tmp_path / 'old'}", "json=true"]) == 0
    assert json.loads(capsys.readouterr().out)["verb"] == "finetune"
