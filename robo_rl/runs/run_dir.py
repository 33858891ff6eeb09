"""The folder of one run: settings, provenance, log, checkpoints and policy.

runs/<name>/config.yaml            all settings
            run.json               commit, seed, versions, arguments, machine
            inputs.json            checksums of the policies and demonstrations that it started from
            metrics.jsonl          scalars; tb/, wandb/ and logger.json belong to their logger
            checkpoints/<step>/    training states, each complete or absent, with checksums of their files. A
                                   step that is saved again is <step>.1 until its older state is deleted
            checkpoints/<step>.damaged/   a state whose files had changed when the run was resumed
            evaluations/           results of `robo-rl evaluate` of checkpoints, by step
            policy/                the final policy
            policies/<name>/       with several embodiments, those of the second and further ones
            encoder/               the final picture encoder, of `pretrain`
            episodes/              successful episodes of training, where `finetune record=` is set
            progress/              model of progress, where `finetune method.progress_weight=` is set
            .lock                  held by the process that writes the run
            .saved                 there after the first checkpoint
            .replaced/<number>/    runs that overwrite=true replaces; deleted when this one is done
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import yaml

from robo_rl.conf.dotted import keys_in_file
from robo_rl.core.errors import ChangedSettingsError, CheckpointError, ConfigError, DataError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.files.durable import fsync_dir, read_json, write_atomic, write_json
from robo_rl.core.files.lock import FolderLock
from robo_rl.core.provenance import commit, machine, versions
from robo_rl.core.settings import FREE_KEYS
from robo_rl.core.text.setting_changes import SettingChange, change_words, setting_changes
from robo_rl.data.episodes.schema import EPISODES
from robo_rl.runs import replaced
from robo_rl.runs.checksums import damage, write_checksums
from robo_rl.runs.loggers import FILES as LOGGER_FILES
from robo_rl.runs.loggers import check_logger
from robo_rl.runs.metrics import Metrics, read_metrics
from robo_rl.runs.outputs import check_folder, ending_in_name

SAVED, PROGRESS, CHECKPOINTS = ".saved", "progress", "checkpoints"
POLICIES = "policies"
OWN_DATA = "own_data"  # in the notes of a joint training's policies: the datasets of that robot
INPUTS_FILE = "inputs.json"
_CHECKPOINT = re.compile(r"\d+(\.\d+)?")


class RunDir:
    """Folder of one run. `create` starts or resumes a run, `open` reads one.

    A created run is locked for this process and used in a `with` block. Leaving the block releases the lock
    and deletes the replaced run, or restores it if the new run failed before it began.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints, self.policy, self.episodes = (
            path / CHECKPOINTS,
            path / "policy",
            path / "episodes",
        )
        self.encoder = path / "encoder"
        self.best = path / "best"  # folder of the best policy of a training that diverged
        self.embodiments = path / POLICIES  # of a joint training, those that are not in `policy`
        self._lock: FolderLock | None = None
        self._aside: Path | None = None  # the run that this one replaces

    def __enter__(self) -> RunDir:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            replaced.drop(self.path)
        elif self._aside is not None and self._never_began():
            replaced.move_back(self.path, self._aside)
        if self._lock is not None:
            self._lock.close()

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: Any,
        *,
        resume: bool = False,
        overwrite: bool = False,
        free: frozenset[str] = FREE_KEYS,
        instead: str = "",
    ) -> RunDir:
        """Start a run in `path`, or continue the existing one.

        config: a verb's dataclass; its `seed` is recorded. Raises ConfigError if the folder is not empty and
        neither `resume` nor `overwrite` is set, if there is nothing to resume, or if a setting outside `free`
        differs from the run's; LockedError while another process writes the run. A setting that the run lacks
        is newer than the run, and counts as its default. instead: what else a user can do whose settings
        differ, such as "train it further by ...".
        """
        run, settings = cls(Path(path)), asdict(config)
        check_logger(settings.get("logger"))
        if resume:
            run._resume(config, free, instead)
            return run
        run._check_room(overwrite, "resume" in settings)
        run.path.mkdir(parents=True, exist_ok=True)
        run._lock = FolderLock(run.path, "folder")
        # the folder may have changed before the lock was acquired
        run._check_room(overwrite, "resume" in settings)
        run._make_room()
        run.checkpoints.mkdir(parents=True)
        write_atomic(run.path / "config.yaml", yaml.safe_dump(settings, sort_keys=False).encode())
        write_json(run.path / "run.json", _provenance(settings) | {"verb": _verb_of(config)})
        return run

    @classmethod
    def check_new(cls, path: str | Path, *, resume: bool, overwrite: bool) -> None:
        """Raise the ConfigError of `create` for a folder that cannot be used, without creating anything."""
        run = cls(Path(path))
        if not resume:
            run._check_room(overwrite, True)
            check_folder("out", str(path))
        elif not (run.path / "run.json").is_file():
            raise ConfigError(f"There is no run in {path} to resume. Start it without resume=true.")

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """An existing run, not locked. Raises DataError if `path` is no run."""
        if not (Path(path) / "run.json").is_file():
            raise DataError(f"{not_a(Path(path), 'a run')} Give the folder that a training wrote.")
        return cls(Path(path))

    def config(self) -> dict[str, Any]:
        """Settings that the run was started with."""
        path = self.path / "config.yaml"
        try:
            settings = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise DataError(
                f"{path} cannot be read ({type(error).__name__}). Start the run again."
            ) from error
        if not isinstance(settings, dict):
            raise DataError(f"{path} holds no settings. It was damaged; start the run again.")
        return settings

    def info(self) -> dict[str, Any]:
        """Contents of run.json. Raises DataError if it is damaged."""
        path = self.path / "run.json"
        try:
            found = read_json(path)
        except DataError as error:
            raise DataError(
                f"{path} is damaged (no valid JSON). Restore it from a copy, or start the run again."
            ) from error
        if not isinstance(found, dict) or found.get("format") != 1:
            raise DataError(
                f"{path} is damaged: an object with format 1 was expected. Restore it from a copy, or "
                "start the run again."
            )
        return found

    def metrics(
        self,
        resume_step: int | None = None,
        *,
        resume_lines: int | None = None,
        bar: Any = None,
    ) -> Metrics:
        """Scalar log of the run, truncated to `resume_step` and `resume_lines` if given.

        It is mirrored in the logger of the run's settings, by default TensorBoard.
        """
        settings = self.config()
        logger = settings.get("logger", "tensorboard")
        return Metrics(
            self.path, resume_step, resume_lines=resume_lines, logger=logger, settings=settings, bar=bar
        )

    @contextmanager
    def new_checkpoint(self, step: int, keep: int | None = None) -> Iterator[Path]:
        """Context manager with a folder for the state of `step`; it becomes checkpoints/<step> if the block
        succeeds.

        A kill at any instant leaves the complete folder or none, and keeps older checkpoints until it is
        complete. Of states of the same step the newest is kept; with `keep`, only the newest `keep` of all.
        """
        draft = self.checkpoints / f".{step:08d}.tmp"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        write_checksums(draft)
        _fsync_tree(draft)
        same, final = [path for at, path in self.steps() if at == step], self.checkpoints / f"{step:08d}"
        # No system call replaces a folder by another: the new one has another name until the old one is
        # deleted.
        newest = draft.rename(final if not same else f"{final}.{_order(same[-1])[1] + 1}")
        fsync_dir(self.checkpoints)
        for old in same:
            self._remove(old)
        newest.rename(final)
        (self.path / SAVED).touch()
        if keep is not None:
            for _, old in self.steps()[:-keep]:
                self._remove(old)

    def _remove(self, folder: Path) -> None:
        """Delete a checkpoint. It is renamed first, so that a kill leaves no part of it under its name."""
        hidden = folder.with_name(f".{folder.name}.old.tmp")
        shutil.rmtree(hidden, ignore_errors=True)
        folder.rename(hidden)
        shutil.rmtree(hidden)

    def steps(self) -> list[tuple[int, Path]]:
        """(step, folder) of the committed checkpoints, oldest first."""
        if not self.checkpoints.is_dir():
            return []
        folders = [path for path in self.checkpoints.iterdir() if _CHECKPOINT.fullmatch(path.name)]
        return [(_order(path)[0], path) for path in sorted(folders, key=_order)]

    def latest(self) -> tuple[int, Path] | None:
        """The newest committed checkpoint; None before the first."""
        return steps[-1] if (steps := self.steps()) else None

    def has_intact(self) -> bool:
        """Whether a checkpoint with intact files is there."""
        return any(not damage(folder) for _, folder in self.steps())

    def newest_intact(self) -> tuple[int, Path] | None:
        """The newest checkpoint with intact files; None before the first.

        Damaged ones are renamed to <name>.damaged with a message. Raises CheckpointError if all are damaged.
        """
        faults: list[str] = []
        for step, folder in reversed(self.steps()):
            if not (fault := damage(folder)):
                for sentence in faults:
                    print(f"{sentence} The run continues from step {step}.")
                return step, folder
            kept = folder.with_name(f"{folder.name}.damaged")
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)
            faults.append(f"The checkpoint {folder} is damaged ({fault}) and is kept as {kept.name}.")
        if faults:
            raise CheckpointError(
                f"{' '.join(faults)} There is no older one: restore a checkpoint from a copy, or start the "
                "run again with overwrite=true."
            )
        return None

    def _check_room(self, overwrite: bool, resumes: bool) -> None:
        """Raise ConfigError if `path` holds something that may not be replaced."""
        if self.path.is_file():
            raise ConfigError(f"{self.path} is a file, and a run is a folder. Choose another path.")
        if not self.path.exists() or not replaced.contents(self.path):
            return
        began = self.began()
        # A start that was killed before run.json, which is written last, leaves settings and an empty
        # checkpoints folder.
        if not (self.path / "run.json").is_file() and (began or not self.checkpoints.is_dir()):
            raise ConfigError(
                f"{self.path} exists and is not a run. It was not changed. Choose another folder."
            )
        if not overwrite and began:
            ways = "resume=true to continue it, " if resumes else ""  # not every verb can resume
            raise ConfigError(
                f"{self.path} already holds a run. Add {ways}overwrite=true to replace it, or choose another "
                "folder by out=."
            )

    def _make_room(self) -> None:
        """Move the existing run aside; delete the remains of a start that failed."""
        if self._never_began():
            replaced.clear(self.path)
            return
        self._aside = replaced.move_aside(self.path)
        print(f"The previous run in {self.path} is kept in {self._aside} until this one is done.")

    def began(self) -> bool:
        """True if the same command without resume=true would be refused."""
        return not self._never_began()

    def _never_began(self) -> bool:
        """True for a run that ended before its first log line, e.g. because of a wrong setting."""
        ours = {
            "config.yaml",
            "run.json",
            "data.json",
            INPUTS_FILE,
            "metrics.jsonl",
            CHECKPOINTS,
            self.episodes.name,
            PROGRESS,
        }
        others = {path.name for path in replaced.contents(self.path)} - ours - LOGGER_FILES
        recorded = (self.episodes / EPISODES).glob("[0-9]*")
        if others or any(recorded) or any(True for _ in read_metrics(self.path / "metrics.jsonl")):
            return False
        return not self.checkpoints.is_dir() or not any(self.checkpoints.iterdir())

    def _resume(self, config: Any, free: frozenset[str], instead: str) -> None:
        """Lock an existing run after checking that it can be continued with `config`."""
        if not (self.path / "run.json").is_file():
            raise ConfigError(f"There is no run in {self.path} to resume. Start it without resume=true.")
        self.info()
        self._check_same(config, free, instead)
        self._lock = FolderLock(self.path, "folder")
        if self.latest() is None and (self.path / SAVED).exists():
            raise ConfigError(
                f"{self.checkpoints} holds no checkpoint, though the run had saved some: they were deleted. "
                "Restore them from a copy, or start the run again with overwrite=true."
            )
        for draft in self.checkpoints.glob(".*.tmp"):  # incomplete when the process was killed
            shutil.rmtree(draft)

    def _check_same(self, config: Any, free: frozenset[str], instead: str) -> None:
        if changes := setting_changes(config, self.config(), free):
            self.refuse(changes, instead)

    def refuse(self, changes: list[SettingChange], instead: str = "") -> NoReturn:
        """Raise ChangedSettingsError that names these settings with both values. instead: as in `create`."""
        before, now = change_words(changes)
        it = "settings" if len(changes) > 1 else "setting"
        ways = f", start a new run, or {instead}" if instead else ", or start a new run"
        raise ChangedSettingsError(
            f"{self.path} was started with {before} and cannot be resumed with {now}. Give the {it} it "
            f"was started with{ways}."
        )


def checkpoint_of(policy: Path) -> tuple[Path, str] | None:
    """(run, name of the checkpoint) for the policy folder in a checkpoint of a run; None for others."""
    for folder in (policy, policy.resolve()):
        checkpoint = holder_of(folder)
        run = ending_in_name(checkpoint.parent.parent)
        if checkpoint.parent.name == CHECKPOINTS and (run / "run.json").is_file():
            return run, checkpoint.name
    return None


def holder_of(policy: Path) -> Path:
    """Run or checkpoint that this policy folder would lie in, as its `policy` or one of its `policies`.

    The path ends in the name of the folder, also where `policy` is relative to it, as in run=. .
    """
    parent = ending_in_name(ending_in_name(policy).parent)
    return ending_in_name(parent.parent) if parent.name == POLICIES else parent


def _order(checkpoint: Path) -> tuple[int, int]:
    """(step, number of earlier saves of this step)."""
    step, _, again = checkpoint.name.partition(".")
    return int(step), int(again or 0)


def _verb_of(config: Any) -> str:
    """Verb whose settings `config` is: "train" of a TrainConfig, "distill" of a DistillVerb."""
    return type(config).__name__.removesuffix("Config").removesuffix("Verb").lower()


def _provenance(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": 1,
        "commit": commit(),
        "seed": settings.get("seed"),
        "versions": versions(),
        "arguments": sys.argv[1:],
        "keys_in_file": keys_in_file(sys.argv[1:]),
        "machine": machine(),
        "started": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _fsync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        fsync_dir(path)
