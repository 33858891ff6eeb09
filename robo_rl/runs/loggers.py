"""Loggers of a run's scalars: TensorBoard, Weights & Biases, MLflow.

metrics.jsonl remains the record of a run; a logger mirrors it under the same names. The id of a W&B or MLflow
run is stored in logger.json in the run's folder, so that a resumed run continues it, with the number of lines
that were ever sent, which are not sent twice.

W&B     writes into <run>/wandb without a network, and a resumed run writes all lines there again;
        WANDB_MODE=online uploads. Project: WANDB_PROJECT or robo-rl.
MLflow  writes where MLFLOW_TRACKING_URI points to, by default ./mlflow.db. Experiment: MLFLOW_EXPERIMENT_NAME
        or robo-rl.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, util
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from robo_rl.conf.dotted import flat
from robo_rl.core.errors import ConfigError, DataError, MissingDependencyError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.packages import install_command

LOGGER_FILE = "logger.json"
FILES = frozenset({LOGGER_FILE, "tb", "wandb"})  # files of loggers in a run's folder
PROJECT = "robo-rl"
_OFFLINE = "offline"  # WANDB_MODE unless told otherwise
_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
# No telemetry to MLflow's developers; an unreachable server is reported after seconds, not minutes.
_MLFLOW_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
# MLflow's limit of parameters per call, and the length of values that every server accepts
_MOST_PARAMS, _LONGEST_PARAM = 100, 500


@runtime_checkable
class ScalarLogger(Protocol):
    """Destination of scalars in addition to metrics.jsonl."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self, failed: bool) -> None: ...


def check_logger(name: str | None) -> None:
    """Raise MissingDependencyError if the logger's package is not installed."""
    if name is not None and util.find_spec(_PACKAGES[name]) is None:
        raise MissingDependencyError(
            f"logger={name} needs the package '{_PACKAGES[name]}', which is not installed. "
            f"Run: {install_command(_PACKAGES[name], None)}"
        )


def open_logger(
    name: str, folder: Path, settings: Mapping[str, Any], kept: Sequence[Mapping[str, Any]], sent: int
) -> ScalarLogger:
    """Logger of the run in `folder`.

    settings: of the run, shown with its curves. kept: lines of metrics.jsonl that a resumed run continues.
    sent: lines logged before; those after `kept` are logged again and are not sent twice. A copy of a run's
    folder begins a run of its own, with all lines.
    """
    check_logger(name)
    if name == "tensorboard":
        return _TensorBoard(folder / "tb", kept)
    if copied := _is_copy(folder):
        if name == "wandb":
            _remove_offline(folder)  # those of the other run, whose id is in the file
        (folder / LOGGER_FILE).unlink()
    here = {"folder": str(folder.resolve())}  # a moved run is known by its new place from now on
    if name == "wandb" and _offline():
        with _explained(name):
            _remove_offline(folder)
            logger: ScalarLogger = _Wandb(folder, settings)
            _log_all(logger, kept)
        write_json(folder / LOGGER_FILE, _noted(folder, name) | here)
        return _Guarded(name, logger, 0)
    sent = len(kept) if copied else max(sent, _noted(folder, name).get("lines", 0))
    with _explained(name):
        logger = (_Wandb if name == "wandb" else _Mlflow)(folder, settings)
        if copied:
            _log_all(logger, kept)
    write_json(folder / LOGGER_FILE, _noted(folder, name) | here | {"lines": sent})
    return _Guarded(name, logger, max(0, sent - len(kept)))


def _log_all(logger: ScalarLogger, lines: Sequence[Mapping[str, Any]]) -> None:
    """Log the finite values of lines of metrics.jsonl."""
    for line in lines:
        finite = {name: value for name, value in line.items() if name != "step" and value is not None}
        logger.log(line["step"], finite)


class _TensorBoard:
    """Event files with exactly the lines of metrics.jsonl; older files are replaced."""

    def __init__(self, folder: Path, kept: Sequence[Mapping[str, Any]]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(folder, ignore_errors=True)
        self._board: Any = SummaryWriter(str(folder))
        _log_all(self, kept)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def close(self, failed: bool) -> None:
        self._board.close()


class _Wandb:
    """A W&B run. Curves are drawn over the value `step`, because W&B's own counter cannot go back after a
    resume.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # error reports to W&B's developers
        wandb: Any = import_module("wandb")
        if "WANDB_MODE" not in os.environ:
            print(
                f"W&B is offline: curves go to {folder / 'wandb'}. WANDB_MODE=online uploads, or `wandb "
                "sync`."
            )
        quiet = {"console": "off", "silent": True, "disable_git": True, "disable_code": True}
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=folder.resolve().name,
            dir=str(folder),
            id=_noted(folder, "wandb").get("id") or _keep_id(folder, "wandb", secrets.token_hex(4)),
            resume="allow",
            mode=os.environ.get("WANDB_MODE", _OFFLINE),
            config=dict(settings),
            settings=wandb.Settings(x_disable_stats=True, x_disable_machine_info=True, **quiet),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class _Mlflow:
    """An MLflow run, written line by line."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        for key, value in _MLFLOW_ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        self._entities: Any = import_module("mlflow.entities")
        self._client: Any = import_module("mlflow.tracking").MlflowClient()
        if (known := _noted(folder, "mlflow").get("id")) is not None:
            self._id = known
            self._client.update_run(known, status="RUNNING")
            return
        run = self._client.create_run(self._experiment(), run_name=folder.resolve().name)
        self._id = _keep_id(folder, "mlflow", run.info.run_id)
        params = [self._entities.Param(key, str(value)[:_LONGEST_PARAM]) for key, value in flat(settings)]
        for at in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._id, params=params[at : at + _MOST_PARAMS])

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now_ms = round(time.time() * 1e3)
        metrics = [self._entities.Metric(name, value, now_ms, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, failed: bool) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


class _Guarded:
    """A logger that skips lines sent before; its errors do not stop a training."""

    def __init__(self, name: str, inner: ScalarLogger, repeated: int) -> None:
        self._name, self._repeated = name, repeated
        self._inner: ScalarLogger | None = inner

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._repeated > 0:
            self._repeated -= 1
        elif self._inner is not None:
            self._try(lambda logger: logger.log(step, values))

    def close(self, failed: bool) -> None:
        self._try(lambda logger: logger.close(failed))

    def _try(self, call: Any) -> None:
        """Call the logger. After its first error it is no longer called; metrics.jsonl is still written."""
        if self._inner is None:
            return
        try:
            call(self._inner)
        except Exception as error:  # clients of an unreachable server raise errors of many types
            self._inner = None
            reason = " ".join(str(error).split())[:200]
            print(
                f"{self._name} accepts no more values ({type(error).__name__}: {reason}). The run continues, "
                "and metrics.jsonl holds all values."
            )


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn an error of a logger's start into a sentence."""
    try:
        yield
    except (ConfigError, DataError, ImportError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"logger={name} could not start ({type(error).__name__}: {reason}). Check its account, address "
            "and network, or use logger=tensorboard."
        ) from error


def _offline() -> bool:
    """True if W&B writes files and sends nothing."""
    return os.environ.get("WANDB_MODE", _OFFLINE) == _OFFLINE


def _remove_offline(folder: Path) -> None:
    """Delete W&B's files of this run, which lack the last lines before a kill, and cannot be continued."""
    if (known := _noted(folder, "wandb").get("id")) is not None:
        for old in (folder / "wandb").glob(f"offline-run-*-{known}"):
            shutil.rmtree(old, ignore_errors=True)


def _noted(folder: Path, name: str) -> dict[str, Any]:
    """Content of logger.json: "id" of the run in the logger, "lines" sent to it, and the "folder" of the run;
    empty for a new run.
    """
    if not (folder / LOGGER_FILE).exists():
        return {}
    noted = dict(read_json(folder / LOGGER_FILE))
    return noted if noted.get("logger") == name else {}


def _is_copy(folder: Path) -> bool:
    """True if logger.json came with a copy of a run's folder: the run of its id is still in the other one.

    A copy on another machine cannot be told from a moved run.
    """
    file = folder / LOGGER_FILE
    noted = dict(read_json(file)) if file.exists() else {}
    other = Path(noted.get("folder", folder))
    # a bind mount is a second path of one folder, which resolve() does not show
    if not (other / LOGGER_FILE).exists() or other.samefile(folder):
        return False
    return bool(read_json(other / LOGGER_FILE).get("id") == noted["id"])


def _keep_id(folder: Path, name: str, run_id: str) -> str:
    write_json(folder / LOGGER_FILE, {"logger": name, "id": run_id})
    return run_id
