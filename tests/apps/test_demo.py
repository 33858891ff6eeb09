"""The demo as a whole: refused settings, kept stages and counted time. Stages are tested with their verbs."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from robo_rl.apps import demo
from robo_rl.apps.cli import main as cli
from robo_rl.apps.workflow import checks, stages
from robo_rl.apps.workflow.report import film_caption, head_row
from robo_rl.apps.workflow.stages import begin
from robo_rl.conf.demo import DemoConfig
from robo_rl.core.errors import ConfigError
from robo_rl.runs.loaded_policy import LoadedPolicy


def test_too_few_steps_are_refused_first(tmp_path: Path) -> None:
    """Reported before collecting and training."""
    out = tmp_path / "demo"
    with pytest.raises(ConfigError, match="steering_steps=1200 leaves no steps for learning"):
        demo.main(DemoConfig(out=str(out), steering_steps=1200))
    assert not out.exists()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("env=foo", "Unknown environment 'foo'"),
        ("env=metaworld/reach", "Did you mean 'metaworld/reach-v3'?"),
        ("env=gym/Hopper-v5", "no scripted expert for 'gym/Hopper-v5'"),
        ("out=FILE", "is a file, expected a folder"),
        ("out=FILE/demo", "is a file, expected a folder"),
    ],
)
def test_mistakes_print_one_sentence_and_leave_nothing(
    setting: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reported before the first stage."""
    (tmp_path / "file").write_text("mine")
    given = [f"out={tmp_path / 'demo'}", setting.replace("FILE", str(tmp_path / "file"))]
    assert cli.main(["demo", *given[setting.startswith("out") :]]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("robo-rl: ") == 1
    assert said.out == ""
    assert not (tmp_path / "demo").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_stage_gives_no_advice_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next command is the demo's next stage; what the stage says otherwise is shown."""

    def main(words: list[str]) -> int:
        print(f"Policy: {words[0]}\nNext:   robo-rl export ...\n        robo-rl run ...")
        return 0

    monkeypatch.setattr(cli, "main", main)
    stages.verb("train")
    assert capsys.readouterr().out == "Policy: train\n"


def test_a_film_names_its_outcomes() -> None:
    assert film_caption("head", [True, False, True]) == "Single-step head: 2 of 3 succeed"
    assert film_caption("head", None) == "Single-step head"


def test_foreign_folder_is_not_changed(tmp_path: Path) -> None:
    """`out` of a dataset is neither filled with the demo's files nor emptied by overwrite=true."""
    (tmp_path / "dataset.json").write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"is a dataset, expected a new folder"):
            demo.main(DemoConfig(out=str(tmp_path), overwrite=overwrite))
    assert [path.name for path in tmp_path.iterdir()] == ["dataset.json"]


def test_resume_needs_the_same_settings(tmp_path: Path) -> None:
    """Otherwise the report would name settings that did not produce its table."""
    first = DemoConfig(out=str(tmp_path))
    checks.check_same(first, tmp_path)
    checks.check_same(
        replace(first, env="metaworld/push-v3"), tmp_path
    )  # nothing was done yet: a slip, mended
    (tmp_path / stages.STAGES_FILE).write_text("{}")
    checks.check_same(replace(first, env="metaworld/push-v3", overwrite=True), tmp_path)
    with pytest.raises(ConfigError, match=r"started with demos=20 and cannot be continued with demos=50"):
        checks.check_same(replace(first, env="metaworld/push-v3", demos=50), tmp_path)


def test_time_of_a_stage_includes_the_part_before_ctrl_c(tmp_path: Path) -> None:
    """The time of a base trained in two parts is that of both."""

    def stopped() -> None:
        time.sleep(0.2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stages.Stages(tmp_path).run("train", "Train", stopped)
    spent = stages.Stages(tmp_path).run("train", "Train", lambda: None)
    assert spent["wall_s"] >= spent["stopped_s"] >= 0.2
    assert stages.Stages(tmp_path).wall_s == spent["wall_s"]


def test_time_of_the_head_excludes_the_comparison() -> None:
    """Without 20 of the stage's 50 s, which compared the head with its teacher."""
    stage, actor = (
        {"wall_s": 50.0, "cpu_s": 48.0, "stopped_s": 0.0},
        cast(LoadedPolicy, SimpleNamespace(noise=1.0)),
    )
    row = head_row(actor, {"env_steps": 16000, "train_wall_s": 30.5, "train_cpu_s": 29.0}, stage)
    assert (row.env_steps, row.wall_s, row.cpu_s) == (16000, 30.5, 29.0)
    assert head_row(actor, {"env_steps": 16000}, stage).cpu_s == 48.0


def test_ctrl_c_of_the_terminal_reaches_only_the_demo(tmp_path: Path) -> None:
    """Only the demo's signal reaches the fine-tuning; a second one would stop it without saving."""
    with (tmp_path / "log").open("w") as log:
        process = begin(["--version"], log)
        assert os.getpgid(process.pid) == process.pid != os.getpgrp()
        assert process.wait(60) == 0
    assert "robo-rl" in (tmp_path / "log").read_text()
