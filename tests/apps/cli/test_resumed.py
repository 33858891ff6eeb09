"""Every verb that trains refuses to resume with a changed setting by its name, with both values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.help import load_schema
from robo_rl.apps.cli.main import main
from robo_rl.apps.cli.verbs import VERBS
from robo_rl.flight.fly.runs import fly_setup
from robo_rl.runs.run_dir import RunDir

STARTED = {
    "train": ["data=nowhere"],
    "pretrain": ["data=nowhere"],
    "finetune": ["base=nowhere"],
    "distill": ["teacher=nowhere"],
    "fly": ["task=figure8", "updates=5"],
    "swarm": ["worlds=5"],
    "vision": ["rounds=2", "px=32"],
    "mission": ["episodes=3"],
}


def begun(folder: Path, verb: str, *words: str) -> Path:
    """A run of the verb that has begun, with these settings."""
    config: Any = load_config(verb, [*STARTED[verb], *words, f"out={folder}"], load_schema(VERBS[verb]))
    if verb == "fly":  # a flight's run holds what its defaults stand for
        config = fly_setup(config)[0]
    with RunDir.create(folder, config) as run:
        return run.path


def said(capsys: pytest.CaptureFixture[str], run: Path, verb: str, *words: str) -> str:
    """Error of a command that resumes the run."""
    assert main([verb, f"out={run}", "resume=true", *words]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("verb", STARTED)
def test_a_changed_setting_is_refused_by_its_name(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the input that is missing, and no setting that was not typed."""
    run = begun(tmp_path / "run", verb)
    was = "was started with seed=0 and cannot be resumed with seed=7. Give the setting it was started with"
    assert was in said(capsys, run, verb, "seed=7")


@pytest.mark.parametrize(
    ("words", "was", "now"),
    [
        (["method.shift_px=1"], "method.shift_px=4", "method.shift_px=1"),
        (["method=steering"], "method=residual", "method=steering"),
        (["method=steering", "seed=2"], "method=residual, seed=0", "method=steering, seed=2"),
        (["method.map.scale=0.3"], "method.map.scale=0.2", "method.map.scale=0.3"),
        (["env=arm/lift"], "env=none", "env=arm/lift"),
    ],
)
def test_a_method_is_refused_by_what_differs(
    words: list[str], was: str, now: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the verb would first say that the setting has no effect."""
    run = begun(tmp_path / "run", "finetune", "method=residual", "method.map.scale=0.2")
    assert f"was started with {was} and cannot be resumed with {now}." in said(
        capsys, run, "finetune", *words
    )


def test_the_whole_command_with_a_change_is_refused_by_the_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other words are those of the run; a fault that is no change keeps its own sentence."""
    run = begun(tmp_path / "run", "train")
    assert "started with chunk=8 and cannot be resumed with chunk=4." in said(
        capsys, run, "train", "data=nowhere", "chunk=4"
    )
    assert "nowhere does not exist" in said(capsys, run, "train", "data=nowhere")
    assert "There is no run in" in said(capsys, tmp_path / "other", "finetune", "base=nowhere")


def test_a_run_of_another_verb_is_named_by_its_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting that the other verb lacks, with the nearest of this one, would not say what is wrong."""
    run = begun(tmp_path / "run", "train")
    wrong = said(capsys, run, "finetune")
    assert "holds settings of a run of robo-rl train, and robo-rl finetune has no setting '" in wrong
    assert "Run robo-rl train with it" in wrong
    assert main(["finetune", f"config={run}/config.yaml", f"out={tmp_path / 'new'}"]) == 2
    assert "holds settings of a run of robo-rl train" in capsys.readouterr().err


@pytest.mark.parametrize("about", ["[]", '{"verb": "tr'])
def test_a_damaged_run_json_hides_no_unknown_setting(
    about: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verb of the run is unknown then; the setting is named all the same."""
    run = begun(tmp_path / "run", "train")
    (run / "run.json").write_text(about)
    assert main(["finetune", f"config={run}/config.yaml", f"out={tmp_path / 'new'}"]) == 2
    assert "which is no setting of robo-rl finetune" in capsys.readouterr().err


def test_a_run_without_its_settings_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a run, so the file that is missing is named."""
    run = begun(tmp_path / "run", "train")
    (run / "config.yaml").unlink()
    assert f"{run} is a run without config.yaml, which holds its settings." in said(capsys, run, "train")
    (run / "run.json").unlink()
    assert f"{run} is a folder of unknown content, not a run." in said(capsys, run, "train")


def test_a_mistyped_folder_alone_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the input that the run would have had."""
    begun(tmp_path / "run", "train")
    wrong = said(capsys, tmp_path / "rnu", "train")
    assert f"{tmp_path / 'rnu'} does not exist" in wrong
    assert "with run" in wrong
