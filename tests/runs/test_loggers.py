"""`logger=` of a run: equal curves in W&B and MLflow, one run of theirs across a resume, no network by
default.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robo_rl.apps.cli.help import load_schema
from robo_rl.apps.cli.verbs import VERBS
from robo_rl.conf.fields import settings
from robo_rl.core.errors import ConfigError, MissingDependencyError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.runs import loggers
from robo_rl.runs.loggers import check_logger
from robo_rl.runs.metrics import Metrics, read_metrics
from robo_rl.runs.run_dir import RunDir
from tests.runs.wandb_file import config as wandb_config
from tests.runs.wandb_file import history

# MLflow calls what SQLAlchemy and Pydantic will remove one day; that is no fault of the code under test.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


@dataclass
class _Config:
    logger: str
    lr: float = 1e-3
    layers: list[int] = field(default_factory=lambda: [64, 64])
    resume: bool = False


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Connections to other machines fail; the loggers' own variables are unset."""
    for name in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        assert isinstance(address, str) or address[0] in ("127.0.0.1", "::1", "localhost"), address
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a database of MLflow; making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'curves.db'}"


def log_and_resume(path: Path, logger: str) -> None:
    """Steps 0 to 3, stopped; resumed from the checkpoint at step 1, which logs 2 and 3 again, then 4."""
    with RunDir.create(path, _Config(logger)) as run, run.metrics() as metrics:
        for step in range(4):
            metrics.log(step, {"critic/q": step / 2, "eval/success": float(step)})
    with RunDir.create(path, _Config(logger, resume=True), resume=True) as run, run.metrics(1) as metrics:
        for step in range(2, 5):
            metrics.log(step, {"critic/q": step / 2, "eval/success": float(step)})
    assert [line["step"] for line in read_metrics(path / "metrics.jsonl")] == [0, 1, 2, 3, 4]


def test_wandb_continues_its_run_offline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every step once, under TensorBoard's names, in one run of W&B that holds the settings."""
    log_and_resume(tmp_path / "run", "wandb")
    deadline_s = time.monotonic() + 20.0  # W&B's own process writes the file's end a moment after `finish`
    while len(lines := history(tmp_path / "run" / "wandb")) < 5 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert lines == [{"step": i, "critic/q": i / 2, "eval/success": float(i)} for i in range(5)]
    noted = wandb_config(tmp_path / "run" / "wandb")
    assert noted["lr"] == 1e-3
    assert noted["layers"] == [64, 64]
    assert noted["id"] == read_json(tmp_path / "run" / "logger.json")["id"]
    assert noted["project"] == "robo-rl"
    assert len(list((tmp_path / "run" / "wandb").glob("offline-run-*"))) == 1
    assert not (tmp_path / "run" / "tb").exists()
    assert "WANDB_MODE=online uploads" in capsys.readouterr().out


class FakeWandb:
    """W&B that keeps what it is sent, by run."""

    def __init__(self) -> None:
        self.sent = list[list[int]]()

    def Settings(self, **_: Any) -> None: ...  # noqa: N802

    def init(self, id: str, dir: str, **_: Any) -> Any:
        sent: list[int] = []
        self.sent.append(sent)
        (Path(dir) / "wandb" / f"offline-run-2026_{len(self.sent)}-{id}").mkdir(parents=True)
        return SimpleNamespace(
            log=lambda values: sent.append(values["step"]),
            define_metric=lambda *_, **__: None,
            finish=lambda **_: None,
        )


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_a_run_that_was_killed_twice_reaches_wandb_once(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at 100 and at 80 lines, both after the checkpoint at 60: online no line is sent twice; offline,
    where a kill may lose lines and files cannot be continued, one folder holds every line.
    """
    monkeypatch.setenv("WANDB_MODE", mode)
    wandb = FakeWandb()
    monkeypatch.setattr(loggers, "import_module", lambda _: wandb)
    for first, last in ((0, 100), (60, 80), (60, 120)):
        resumed: dict[str, Any] = {"resume_step": 59, "resume_lines": 60} if first else {}
        with Metrics(tmp_path, **resumed, logger="wandb") as metrics:
            for step in range(first, last):
                metrics.log(step, {"loss": 1.0})
    if mode == "online":
        assert [step for part in wandb.sent for step in part] == list(range(120))
    else:
        assert wandb.sent[-1] == list(range(120))
        (only,) = (tmp_path / "wandb").iterdir()
        assert only.name.startswith("offline-run-2026_3-")


@pytest.mark.parametrize("mode", ["offline", "online"])
def test_a_copied_run_has_a_run_of_its_own(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all lines; a moved run goes on. Both continue from the checkpoint at 3 lines of 5."""
    monkeypatch.setenv("WANDB_MODE", mode)
    wandb = FakeWandb()
    monkeypatch.setattr(loggers, "import_module", lambda _: wandb)

    def log(folder: Path, first: int, last: int) -> Any:
        resumed: dict[str, Any] = {"resume_step": 2, "resume_lines": 3} if first else {}
        with Metrics(folder, **resumed, logger="wandb") as metrics:
            for step in range(first, last):
                metrics.log(step, {"loss": 1.0})
        return read_json(folder / "logger.json")["id"]

    (tmp_path / "begun").mkdir()
    first = log(tmp_path / "begun", 0, 5)
    (tmp_path / "begun").rename(tmp_path / "moved")
    assert log(tmp_path / "moved", 3, 6) == first
    shutil.copytree(tmp_path / "moved", tmp_path / "copied")
    copied = log(tmp_path / "copied", 3, 7)
    assert wandb.sent[-1] == list(range(7))
    assert copied != first
    (only,) = (tmp_path / "copied" / "wandb").iterdir()
    assert only.name.endswith(copied)
    assert len(list((tmp_path / "moved" / "wandb").glob(f"*-{first}"))) == (1 if mode == "offline" else 2)
    assert log(tmp_path / "moved", 3, 7) == first
    assert log(tmp_path / "copied", 3, 8) == copied


def test_a_run_reached_by_a_second_path_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind mount, which needs root: a link that `resolve` does not follow. Hard links of the files in a
    folder of its own are a copy, as a backup makes them.
    """
    run, mounted, backup = (tmp_path / name for name in ("run", "mounted", "backup"))
    run.mkdir()
    write_json(run / "logger.json", {"logger": "wandb", "id": "x1", "folder": str(run)})
    mounted.symlink_to(run)
    shutil.copytree(run, backup, copy_function=os.link)
    monkeypatch.setattr(Path, "resolve", Path.absolute)
    assert not loggers._is_copy(mounted)
    assert loggers._is_copy(backup)


def test_wandb_without_an_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WANDB_MODE=online without a key: refused before training, and the folder can be used again."""
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.netrc
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with (
        pytest.raises(ConfigError, match=r"logger=wandb could not start .*or use logger=tensorboard"),
        RunDir.create(tmp_path / "run", _Config("wandb")) as run,
    ):
        run.metrics()
    monkeypatch.delenv("WANDB_MODE")
    RunDir.create(tmp_path / "run", _Config("wandb"))


def test_mlflow_continues_its_run_in_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """Every step once, under TensorBoard's names; settings are parameters; the run ends as finished."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "pegs")
    log_and_resume(tmp_path / "run", "mlflow")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(database)
    experiment = client.get_experiment_by_name("pegs")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == read_json(tmp_path / "run" / "logger.json")["id"]
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["lr"] == "0.001"
    assert run.data.params["layers"] == "[64,64]"
    for name, scale in (("critic/q", 0.5), ("eval/success", 1.0)):
        curve = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
        assert curve == [(step, step * scale) for step in range(5)]


def test_mlflow_marks_a_run_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """After an error in training no run is left in the state "running"."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    with (
        pytest.raises(ZeroDivisionError),
        RunDir.create(tmp_path / "run", _Config("mlflow")).metrics() as metrics,
    ):
        metrics.log(0, {"loss": 1 / 0})
    from mlflow.tracking import MlflowClient

    run = MlflowClient(database).get_run(read_json(tmp_path / "run" / "logger.json")["id"])
    assert run.info.status == "FAILED"


def test_training_continues_after_a_logger_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], database: str
) -> None:
    """A server refuses a value during training: one message, and metrics.jsonl holds every line."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    with RunDir.create(tmp_path / "run", _Config("mlflow")) as run, run.metrics() as metrics:
        metrics.log(0, {"loss": 1.0})
        metrics.log(1, {"a name with a % is refused by MLflow": 1.0})
        metrics.log(2, {"loss": 1.0})
    assert [line["step"] for line in read_metrics(run.path / "metrics.jsonl")] == [0, 1, 2]
    assert capsys.readouterr().out.count("mlflow accepts no more values") == 1


def test_missing_package_is_reported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs the package, and no folder is made."""
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'robo-rl\[wandb\]'"):
        RunDir.create(tmp_path / "run", _Config("wandb"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(MissingDependencyError, match=r"pip install 'robo-rl\[mlflow\]'"):
        check_logger("mlflow")


def test_a_resumed_run_keeps_its_logger(tmp_path: Path) -> None:
    """A logger cannot be changed within a run."""
    RunDir.create(tmp_path / "run", _Config("tensorboard")).metrics().close()
    with pytest.raises(ConfigError, match="was started with logger=tensorboard"):
        RunDir.create(tmp_path / "run", _Config("wandb", resume=True), resume=True)


@pytest.mark.parametrize("verb", ["train", "pretrain", "finetune", "distill", "fly", "swarm", "vision"])
def test_every_verb_that_trains_takes_a_logger(verb: str) -> None:
    """One setting with the same choices; TensorBoard unless told otherwise."""
    setting = settings(load_schema(VERBS[verb]))["logger"]
    assert setting.choices == ("tensorboard", "wandb", "mlflow")
    assert setting.default == "tensorboard"
