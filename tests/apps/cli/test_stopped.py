"""Message of Ctrl-C on what is left of a command."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robo_rl.apps import evaluate, train
from robo_rl.apps.cli.main import main
from robo_rl.apps.cli.stopped import stopped_words
from robo_rl.conf.train import TrainConfig
from robo_rl.runs.run_dir import RunDir


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_training_without_a_folder_has_saved_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while the data are read."""
    monkeypatch.setattr(train, "train", interrupted)
    assert main(["train", f"data={tmp_path}", f"out={tmp_path / 'run'}"]) == 130
    said = capsys.readouterr().err
    assert said == "robo-rl: stopped; nothing was saved; the same command starts again.\n"


def test_an_evaluation_has_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It saves nothing before it is done."""
    monkeypatch.setattr(evaluate, "run_evaluation", interrupted)
    assert main(["evaluate", "policy=runs/base"]) == 130
    assert capsys.readouterr().err == "robo-rl: stopped; no result.\n"


def test_an_evaluation_that_films_has_a_result(tmp_path: Path) -> None:
    """It writes out= before it films."""
    result, began_s = tmp_path / "result.json", time.time() - 1.0
    config = SimpleNamespace(out=str(result))
    assert stopped_words("evaluate", config, began_s) == "no result"
    result.write_text("{}")
    assert stopped_words("evaluate", config, began_s) == f"the result is in {result}"
    assert stopped_words("evaluate", config, time.time() + 60.0) == "no result"


def test_a_run_says_what_its_folder_holds(tmp_path: Path) -> None:
    """Without a checkpoint, with one, and with the run of an earlier command in the same folder."""
    began_s, out = time.time() - 1.0, str(tmp_path / "run")
    config = TrainConfig(data="data", out=out)
    with RunDir.create(out, config) as run:
        assert "nothing was saved yet" in stopped_words("train", config, began_s)
        with run.new_checkpoint(40) as folder:
            (folder / "state").write_text("")
        assert "saved update 40" in stopped_words("train", config, began_s)
        assert "saved step 40" in stopped_words("finetune", config, began_s)
    later_s = time.time() + 60.0
    assert stopped_words("train", config, later_s).startswith("nothing was saved; the same command")
    resumed = TrainConfig(data="data", out=out, resume=True)
    assert "saved update 40" in stopped_words("train", resumed, later_s)


@pytest.mark.parametrize("verb", ["data import", "data export", "data merge"])
def test_a_conversion_that_is_stopped_says_that_nothing_was_written(verb: str, tmp_path: Path) -> None:
    """`out` appears when it is complete, so no part of it is kept."""
    config = SimpleNamespace(out=str(tmp_path / "set"))
    assert stopped_words(verb, config, 0.0) == "nothing was written; the same command starts again"
    (tmp_path / "set").mkdir()  # Ctrl-C after the rename
    assert stopped_words(verb, config, 0.0) == "what was committed before is kept"


def test_stopped_measurements_say_whether_they_have_figures(tmp_path: Path) -> None:
    """Both verbs write results.json before pictures; only `mission` makes a run, which it continues."""
    config, began_s = SimpleNamespace(out=str(tmp_path), resume=False), time.time() - 1.0
    assert stopped_words("mission", config, began_s) == "no result; the same command starts again"
    (tmp_path / "run.json").write_text("{}")
    assert "with resume=true" in stopped_words("mission", config, began_s)
    assert "resume" not in stopped_words("mission", config, time.time() + 60.0)  # that is another run's
    resumed = SimpleNamespace(out=str(tmp_path), resume=True)
    assert "with resume=true" in stopped_words("mission", resumed, time.time() + 60.0)
    assert stopped_words("transfer", config, began_s) == "no result; the same command starts again"
    (tmp_path / "results.json").write_text("{}")
    assert stopped_words("transfer", config, began_s) == f"the figures are in {tmp_path / 'results.json'}"
    assert stopped_words("transfer", config, time.time() + 60.0).startswith("no result")


def test_other_commands_say_what_is_true_for_them() -> None:
    """An edit is committed or undone; before the settings are read nothing has begun."""
    assert stopped_words("data edit", SimpleNamespace(out="x"), 0.0) == "what was committed before is kept"
    assert stopped_words("train", None, 0.0) == "nothing was started"
