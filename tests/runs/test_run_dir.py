"""Run folders and metrics: nothing is lost or overwritten, and the curve is the same after a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from robo_rl.core.errors import ConfigError, DataError, LockedError
from robo_rl.runs.metrics import Metrics, read_metrics
from robo_rl.runs.run_dir import RunDir

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class _Config:
    lr: float = 1e-3
    seed: int = 7
    resume: bool = False


@dataclass
class _Whole:
    """Settings of a verb without checkpoints."""

    seed: int = 7


def test_run_folder_records_its_origin(tmp_path: Path) -> None:
    """Settings, seed, commit, versions and machine are inside; reopening gives the settings back."""
    run = RunDir.create(tmp_path / "run", _Config())
    again = RunDir.open(tmp_path / "run")
    assert again.config() == {"lr": 1e-3, "seed": 7, "resume": False}
    info = again.info()
    assert info["seed"] == 7
    assert torch.__version__.startswith(info["versions"]["torch"].split("+")[0])
    assert {"commit", "machine", "arguments", "started"} <= info.keys()
    assert run.latest() is None


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    """Repeating a command must not delete two hours of training."""
    RunDir.create(tmp_path / "run", _Config())
    (tmp_path / "run" / "kept").write_text("x")
    with pytest.raises(ConfigError, match="Add resume=true to continue it, overwrite=true to replace it"):
        RunDir.create(tmp_path / "run", _Config())
    assert (tmp_path / "run" / "kept").exists()
    RunDir.create(tmp_path / "run", _Config(lr=1.0), overwrite=True)
    assert not (tmp_path / "run" / "kept").exists()
    assert RunDir.open(tmp_path / "run").config()["lr"] == 1.0


def test_resume_is_suggested_only_if_supported(tmp_path: Path) -> None:
    """distill, vision and mission have no resume=true: the message must not suggest it."""
    RunDir.create(tmp_path / "run", _Whole())
    (tmp_path / "run" / "kept").write_text("x")
    with pytest.raises(
        ConfigError, match=r"already holds a run\. Add overwrite=true to replace it, or choose"
    ):
        RunDir.create(tmp_path / "run", _Whole())


def test_run_without_a_log_line_can_be_started_again(tmp_path: Path) -> None:
    """A wrong setting must not block the corrected command; one log line or checkpoint makes it a run."""
    run = RunDir.create(tmp_path / "run", _Config())
    run.metrics().close()
    again = RunDir.create(tmp_path / "run", _Config(lr=2.0))
    assert again.config()["lr"] == 2.0
    with again.metrics() as metrics:
        metrics.log(1, {"loss": 1.0})
    with pytest.raises(ConfigError, match="already holds a run"):
        RunDir.create(tmp_path / "run", _Config())


def test_killed_start_can_be_repeated(tmp_path: Path) -> None:
    """run.json is written last; without it, settings and an empty checkpoints folder are no run."""
    RunDir.create(tmp_path / "run", _Config())
    (tmp_path / "run" / "run.json").unlink()
    assert RunDir.create(tmp_path / "run", _Config()).info()["seed"] == 7


def test_a_run_behind_a_link_is_replaced_where_it_lies(tmp_path: Path) -> None:
    """`runs` is often another disk: links and mount points stay."""
    RunDir.create(tmp_path / "disk" / "run", _Config())
    (tmp_path / "disk" / "run" / "kept").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    RunDir.create(tmp_path / "link", _Config(lr=1.0), overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert RunDir.open(tmp_path / "disk" / "run").config()["lr"] == 1.0
    assert not (tmp_path / "disk" / "run" / "kept").exists()


@pytest.mark.parametrize("damage", [b"lr: [1, 2", b"\xff\xfe\x00", b"", None])
def test_damaged_settings_are_refused(damage: bytes | None, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", _Config())
    (run.path / "config.yaml").unlink()
    if damage is not None:
        (run.path / "config.yaml").write_bytes(damage)
    with pytest.raises(DataError, match=r"config\.yaml"):
        RunDir.create(tmp_path / "run", _Config(), resume=True)


def test_a_replaced_run_stays_until_the_new_one_is_done(tmp_path: Path) -> None:
    """overwrite=true moves the old policy aside; it is deleted at the end of the new run."""
    run = RunDir.create(tmp_path / "run", _Config())
    (run.path / "policy").mkdir()
    aside = tmp_path / "run" / ".replaced" / "1" / "policy"

    def fail() -> None:
        with (
            RunDir.create(tmp_path / "run", _Config(lr=1.0), overwrite=True) as new,
            new.metrics() as metrics,
        ):
            metrics.log(1, {"loss": 1.0})
            raise OSError("the machine has no power")

    with pytest.raises(OSError, match="no power"):
        fail()
    assert aside.is_dir()
    with RunDir.create(tmp_path / "run", _Config(resume=True, lr=1.0), resume=True):
        assert aside.is_dir()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".lock",
        "checkpoints",
        "config.yaml",
        "metrics.jsonl",
        "run.json",
        "tb",
    ]


def test_failed_start_restores_the_replaced_run(tmp_path: Path) -> None:
    """A setting that only training refuses must not delete the finished policy."""
    (RunDir.create(tmp_path / "run", _Config()).path / "policy").mkdir()

    def fail() -> None:
        with RunDir.create(tmp_path / "run", _Config(lr=-1.0), overwrite=True):
            raise ConfigError("lr=-1 cannot be used")

    with pytest.raises(ConfigError, match="lr=-1"):
        fail()
    run = RunDir.open(tmp_path / "run")
    assert run.config()["lr"] == 1e-3
    assert run.policy.is_dir()
    assert not (tmp_path / "run" / ".replaced").exists()


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    """resume=true and overwrite=true are refused while another process writes the run."""
    code = (
        "import sys\nfrom tests.runs.test_run_dir import RunDir, _Config, Path\n"
        "run = RunDir.create(Path(sys.argv[1]), _Config())\nprint('locked', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "locked\n"
        for ways in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(LockedError, match=rf"in use by process {other.pid} \(.*since 20"):
                RunDir.create(tmp_path / "run", _Config(), **ways)
        other.stdin.close()
    assert RunDir.create(tmp_path / "run", _Config(resume=True), resume=True).latest() is None


def test_deleted_checkpoints_are_not_a_new_start(tmp_path: Path) -> None:
    """resume=true would otherwise delete the log and start anew silently."""
    run = RunDir.create(tmp_path / "run", _Config())
    with run.new_checkpoint(10) as folder:
        (folder / "state.json").write_text("{}")
    shutil.rmtree(run.checkpoints / "00000010")
    with pytest.raises(ConfigError, match="holds no checkpoint, though the run had saved some"):
        RunDir.create(tmp_path / "run", _Config(), resume=True)


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"seed": 7}', "\x00"])
def test_damaged_run_json_is_refused(damage: str, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", _Config())
    (run.path / "run.json").write_text(damage)
    with pytest.raises(DataError, match=r"run\.json is damaged.*start the run again"):
        RunDir.create(tmp_path / "run", _Config(), resume=True)


def test_a_foreign_folder_is_never_deleted(tmp_path: Path) -> None:
    """`out=~` with overwrite=true by mistake: only folders that hold a run are replaced."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="was not changed"):
        RunDir.create(tmp_path, _Config(), overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_resume_needs_the_same_settings(tmp_path: Path) -> None:
    """A run resumed with another learning rate would belong to neither; `resume` itself may differ."""
    RunDir.create(tmp_path / "run", _Config())
    RunDir.create(tmp_path / "run", _Config(resume=True), resume=True)
    with pytest.raises(ConfigError, match=r"started with lr=0.001 .* lr=0.1"):
        RunDir.create(tmp_path / "run", _Config(lr=0.1), resume=True)
    with pytest.raises(ConfigError, match=r"was started with, start a new run, or leave it\.$"):
        RunDir.create(tmp_path / "run", _Config(lr=0.1), resume=True, instead="leave it")
    with pytest.raises(ConfigError, match="no run in"):
        RunDir.create(tmp_path / "other", _Config(), resume=True)
    with pytest.raises(DataError, match=r"other does not exist; the nearest existing folder is .*, with run"):
        RunDir.open(tmp_path / "other")


def test_checkpoint_is_complete_or_absent(tmp_path: Path) -> None:
    """After an error in writing a checkpoint, the previous one is the newest; resuming deletes the rest."""
    run = RunDir.create(tmp_path / "run", _Config())
    for step in (10, 20, 30):
        with run.new_checkpoint(step, keep=2) as folder:
            (folder / "state.json").write_text(str(step))
    assert [step for step, _ in run.steps()] == [20, 30]

    def fail() -> None:
        with run.new_checkpoint(40) as folder:
            (folder / "state.json").write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    latest = run.latest()
    assert latest is not None
    assert latest[0] == 30
    assert (latest[1] / "state.json").read_text() == "30"
    RunDir.create(tmp_path / "run", _Config(), resume=True)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["00000020", "00000030"]


@pytest.mark.parametrize("step", [10, 20])
def test_kill_at_any_call_leaves_a_complete_checkpoint(tmp_path: Path, step: int) -> None:
    """The same step once more, and the next one, each with keep=1: first the old state is the newest, then
    the new.
    """
    command = [sys.executable, "tests/apps/tuning/die_in_checkpoint.py", str(tmp_path), str(step)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["died"] for result in results] == [True] * (len(results) - 1) + [False]
    assert len(results) > 15
    found = [result["found"] for result in results]
    assert found == sorted(found)
    assert [value for i, value in enumerate(found) if value not in found[:i]] == [[10, 1.0], [step, 2.0]]
    for result in results:
        assert result["resumed"] == result["found"]
        assert (result["after"], result["left"]) == ([step, 3.0], [f"{step:08d}"])


def test_metrics_are_cut_back_to_the_restored_step(tmp_path: Path) -> None:
    """Lines after the checkpoint are logged again; a truncated last line is dropped, too."""
    with Metrics(tmp_path) as metrics:
        for step in range(5):
            metrics.log(step, {"loss": torch.tensor(1.0 / (step + 1)), "nan": float("nan")})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')
    with Metrics(tmp_path, resume_step=2) as metrics:
        metrics.log(3, {"loss": 0.25})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert lines[0] == {"step": 0, "loss": 1.0, "nan": None}


@pytest.mark.parametrize("damage", [b'{"step": 1, "lo\n', b"\x00\xff\n", b"7\n", b'{"loss": 1.0}\n', b"\n"])
def test_damaged_log_line_is_refused(damage: bytes, tmp_path: Path) -> None:
    """A damaged line in the middle is named by number, and the file is not changed; without the line the run
    continues.
    """
    with Metrics(tmp_path) as metrics:
        for step in range(3):
            metrics.log(step, {"loss": 1.0})
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(whole[0] + damage + whole[2])
    with pytest.raises(DataError, match="damaged in line 2"):
        Metrics(tmp_path, resume_step=2)
    assert path.read_bytes() == whole[0] + damage + whole[2]
    path.write_bytes(whole[0] + whole[2])
    with Metrics(tmp_path, resume_step=2) as metrics:
        assert metrics.lines == 2


def test_tensorboard_shows_the_same_curve(tmp_path: Path) -> None:
    """After a resume the event files hold exactly the lines of metrics.jsonl, none twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Metrics(tmp_path) as metrics:
        for step in range(4):
            metrics.log(step, {"loss": float(step)})
    with Metrics(tmp_path, resume_step=1) as metrics:
        metrics.log(2, {"loss": 20.0})
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 0.0), (1, 1.0), (2, 20.0)]


def test_a_killed_process_loses_no_line(tmp_path: Path) -> None:
    """SIGKILL right after `log` returned: the line exists."""
    code = (
        "import sys, time; from pathlib import Path; from robo_rl.runs.metrics import Metrics\n"
        f"m = Metrics(Path({str(tmp_path)!r}), logger=None)\n"
        "for step in range(100): m.log(step, {'x': step})\n"
        "print('logged', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "logged\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(list(read_metrics(tmp_path / "metrics.jsonl"))) == 100
