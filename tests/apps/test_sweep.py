"""Sweeps: one run for each combination of values, which one command continues."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robo_rl.apps.cli.main import main
from robo_rl.apps.cli.multirun import expand_sweeps
from robo_rl.core.errors import ConfigError


def test_each_combination_of_a_sweep_has_its_folder() -> None:
    """Two seeds times two rates; a list and a path with a comma are no sweeps."""
    words = ["out=runs/x", "seed=range(1,3)", "lr=1e-3,1e-4", "hidden=[8,8]", "base=a b/c"]
    runs = expand_sweeps("train", words)
    assert runs[1] == ["out=runs/x/seed=1,lr=1e-4", "seed=1", "lr=1e-4", "hidden=[8,8]", "base=a b/c"]
    assert len(runs) == 4
    with pytest.raises(ConfigError, match="needs a setting with several values"):
        expand_sweeps("train", ["out=r", "seed=1"])
    with pytest.raises(ConfigError, match=r"by out=\.\.\."):
        expand_sweeps("train", ["seed=1,2"])


def test_sweep_trains_and_is_listed(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`train -m seed=1,2` gives two policies; `runs` shows the seed as the differing setting."""
    small = ["steps=2", "batch_size=4", "net.width=8", "net.depth=1"]
    assert main(["train", "-m", "seed=1,2", f"data={dataset}", f"out={tmp_path / 'r'}", *small]) == 0
    assert (tmp_path / "r" / "seed=2" / "policy").is_dir()
    capsys.readouterr()
    assert main(["runs", f"path={tmp_path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["seed=1", "seed=2"]
    assert all("not measured" in line for line in lines)


def test_a_failed_combination_does_not_end_the_sweep(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of three is refused: the third runs, and the end says which failed and why, with code 2."""
    words = ["train", "-m", f"data={dataset}", f"out={tmp_path}", "steps=2", "net.width=8", "net.depth=1"]
    assert main([*words, "batch_size=4,-1,8"]) == 2
    assert (tmp_path / "batch_size=8" / "policy").is_dir()
    said = capsys.readouterr().err.splitlines()
    assert said[-2] == "robo-rl: 1 of 3 runs failed:"
    assert said[-1].startswith(f"  {tmp_path}/batch_size=-1: batch_size=-1")


def test_a_sweep_is_continued_by_one_command(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """seed=1 is finished, seed=2 was stopped before its end, and seed=3 has not begun."""
    words = ["train", f"data={dataset}", "steps=4", "checkpoint_every=2", "net.width=8", "net.depth=1"]
    for seed in (1, 2):
        assert main([*words, f"seed={seed}", f"out={tmp_path}/seed={seed}"]) == 0
    weights = (tmp_path / "seed=2/policy/weights.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "seed=2/policy")
    first = (tmp_path / "seed=1/policy/weights.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    assert main([words[0], "-m", *words[1:], "seed=1,2,3", f"out={tmp_path}", "resume=true"]) == 0
    assert "seed=1 is finished and was skipped" in capsys.readouterr().out
    assert (tmp_path / "seed=1/policy/weights.safetensors").stat().st_mtime_ns == first
    assert (tmp_path / "seed=2/policy/weights.safetensors").read_bytes() == weights
    assert (tmp_path / "seed=3/policy").is_dir()


def test_a_finished_run_with_other_settings_fails_in_a_resumed_sweep(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the setting is left out now; a setting that may change, such as threads, does not count."""
    words = ["train", "-m", f"data={dataset}", f"out={tmp_path}", "net.width=8", "net.depth=1", "seed=1,2"]
    monkeypatch.setattr("sys.argv", ["robo-rl", *words, "steps=2"])  # kept in run.json
    assert main([*words, "steps=2"]) == 0
    for changed in (["steps=3"], []):
        capsys.readouterr()
        assert main([*words, *changed, "resume=true"]) == 2
        said = capsys.readouterr()
        assert "2 of 2 runs failed" in said.err
        assert "skipped" not in said.out
        assert f"{tmp_path}/seed=1 was started with steps=2" in said.err
    assert main([*words, "steps=2", "threads=1", "resume=true"]) == 0
    assert capsys.readouterr().out.count("is finished and was skipped") == 2


def test_a_setting_that_left_the_file_fails_in_a_resumed_sweep(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is the same; the run was made with a setting that its config= no longer holds."""
    file, out = tmp_path / "mine.yaml", tmp_path / "runs"
    words = ["train", "-m", f"config={file}", f"data={dataset}", f"out={out}", "seed=1,2"]
    file.write_text("steps: 2\nnet: {name: mlp, width: 8, depth: 1}\nlr: 0.002\n")
    monkeypatch.setattr("sys.argv", ["robo-rl", *words])  # kept in run.json
    assert main(words) == 0
    assert main([*words, "resume=true"]) == 0
    assert capsys.readouterr().out.count("is finished and was skipped") == 2
    file.write_text("steps: 2\nnet: {name: mlp, width: 8, depth: 1}\n")
    assert main([*words, "resume=true"]) == 2
    assert f"{out}/seed=1 was started with lr=0.002" in capsys.readouterr().err
