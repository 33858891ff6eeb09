"""Creation and opening of datasets for writing; start of episodes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any, SupportsInt

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.describe_path import describe_path
from robo_rl.core.files.durable import make_folder, write_json
from robo_rl.core.files.lock import LOCK_FILE, FolderLock
from robo_rl.core.spec import EnvSpec, image_fault
from robo_rl.data.episodes.commit import numbers, staging_lock
from robo_rl.data.episodes.disk import existing_parent, report_full_disk, require_free
from robo_rl.data.episodes.episode_writer import EpisodeWriter, RecordOptions
from robo_rl.data.episodes.schema import (
    DATASET_JSON,
    EPISODES,
    STAGING,
    STAMP_COLUMNS,
    ZARR_JSON,
    Codec,
    DatasetMeta,
    EpisodeMeta,
)
from robo_rl.data.spec_difference import differences


class DatasetWriter:
    """Writes episodes into one dataset and holds its lock: one process at a time may write.

    The lock is released by `close`, with the writer and its last running episode, or with the process.
    """

    def __init__(self, path: Path, meta: DatasetMeta, options: RecordOptions, lock: FolderLock) -> None:
        self.path, self.meta, self.options, self._lock = path, meta, options, lock

    def close(self) -> None:
        """Release the dataset for other processes."""
        self._lock.close()

    @property
    def spec(self) -> EnvSpec:
        return self.meta.env

    @classmethod
    def create(
        cls,
        path: str | Path,
        env: EnvSpec,
        *,
        image_codec: Codec = "raw",
        jpeg_quality: int = 95,
        stamps: tuple[str, ...] = STAMP_COLUMNS,
        min_free_bytes: int = 2**30,
        durable: bool = True,
        info: Mapping[str, Any] | None = None,
        renew: bool = False,
    ) -> DatasetWriter:
        """Create an empty dataset.

        stamps: names of the per-frame time stamps [ns]; each of several cameras can have its own,
        "t_capture_ns.<camera>". min_free_bytes, durable: see `RecordOptions`. info: free JSON (robot, place,
        commit). renew: replace a dataset without any episode (`never_filled`). Raises DataError if
        `path` exists or for a contract that cannot be stored, DiskFullError below `min_free_bytes`. Nothing
        is created before everything is checked.
        """
        root = Path(path)
        refuse_taken(root, renew=renew)
        meta = _checked(DatasetMeta(env, image_codec, jpeg_quality, tuple(stamps), _json(info)))
        require_free(root if root.is_dir() else existing_parent(root), min_free_bytes)
        make_folder(root)
        lock = FolderLock(root, "dataset")
        refuse_taken(root, renew=renew)  # another process may have made it before the lock was acquired
        with report_full_disk(root, "the new dataset"):
            make_folder(root / EPISODES)
            make_folder(root / STAGING)
            write_json(
                root / EPISODES / ZARR_JSON, {"zarr_format": 3, "node_type": "group", "attributes": {}}
            )
            write_json(root / DATASET_JSON, meta.to_json())
        return cls(root, meta, RecordOptions(min_free_bytes, durable), lock)

    @classmethod
    def open(
        cls,
        path: str | Path,
        env: EnvSpec | None = None,
        *,
        min_free_bytes: int = 2**30,
        durable: bool = True,
    ) -> DatasetWriter:
        """Open an existing dataset to add episodes.

        Raises DataError if it has another format or belongs to another `env`, LockedError while another
        process writes it.
        """
        root = Path(path)
        meta = DatasetMeta.load(root)
        if env is not None:
            check_contract_of(root, meta.env, env)
        return cls(root, meta, RecordOptions(min_free_bytes, durable), FolderLock(root, "dataset"))

    def episode(
        self,
        *,
        task: str = "",
        seed: SupportsInt | None = None,
        operator: str = "",
        info: Mapping[str, Any] | None = None,
        recorded_at: str | None = None,
    ) -> EpisodeWriter:
        """Start an episode; use it in a `with` block. info: free JSON (policy, noise, operator's notes).
        recorded_at: time of an imported episode, e.g. "2026-01-31T12:00:00Z"; None: now.

        Raises DiskFullError below `min_free_bytes`, DataError if `info` is not JSON.
        """
        require_free(self.path, self.options.min_free_bytes)
        meta = EpisodeMeta(
            task=task,
            seed=None if seed is None else int(seed),
            operator=operator,
            recorded_at=recorded_at or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            info=_json(info),
        )
        return EpisodeWriter(self.path, self.meta, meta, self.options, self._lock)

    @property
    def next_number(self) -> int:
        """Number of the next episode to be committed."""
        return max(numbers(self.path), default=-1) + 1

    def rewind(self, next_number: int) -> None:
        """Delete unfinished episodes and those from `next_number` on.

        For a run that resumes from a checkpoint and records them again. Raises DataError while an episode is
        being recorded.
        """
        with staging_lock(self.path, exclusive=True):
            for number in numbers(self.path):
                if number >= next_number:
                    rmtree(self.path / EPISODES / f"{number:06d}")
            for staged in (self.path / STAGING).iterdir():
                if staged.is_dir():
                    rmtree(staged)


def check_contract_of(root: Path, found: EnvSpec, env: EnvSpec) -> None:
    """Raise DataError where the dataset in `root`, of the contract `found`, cannot take episodes of `env`."""
    if found != env:
        raise DataError(
            f"{root} holds episodes of another contract than {env.name}: found in the dataset "
            f"{differences(found, env)}. Record into a new dataset by another out=."
        )


def never_filled(root: Path) -> bool:
    """True for a dataset without any episode, also without an unfinished one, and without other files."""
    if not (root / DATASET_JSON).exists():
        return False
    DatasetMeta.load(root)  # of another format, it might keep its episodes elsewhere
    own = {DATASET_JSON, EPISODES, STAGING, LOCK_FILE}
    staged = (root / STAGING).is_dir() and any(path.is_dir() for path in (root / STAGING).iterdir())
    return not numbers(root) and not staged and all(path.name in own for path in root.iterdir())


def refuse_taken(root: Path, *, renew: bool = False) -> None:
    """Raise DataError if a new dataset cannot be created because the path is taken. renew: one without any
    episode does not count.
    """
    if not root.exists() or (renew and never_filled(root)):
        return
    if not root.is_dir():
        raise DataError(
            f"{root} exists already and is a file, but a dataset is a folder. Choose another path."
        )
    if (root / DATASET_JSON).exists():
        raise DataError(
            f"{root} exists already and is a dataset. `robo-rl collect` with the same out adds episodes to "
            "it, in Python DatasetWriter.open; or choose another path."
        )
    if any(path.name != LOCK_FILE for path in root.iterdir()):
        raise DataError(
            f"{root} exists already and {describe_path(root)}, not a dataset. It was not changed. Choose "
            "another path."
        )


def _checked(meta: DatasetMeta) -> DatasetMeta:
    """`meta`. Raises DataError if a reader would refuse its dataset.json, or an image for its type."""
    for key, array in meta.env.obs.items():
        if fault := image_fault(key, array):
            raise DataError(f"{fault} Correct the EnvSpec.")
    try:
        if DatasetMeta.from_json(json.loads(json.dumps(meta.to_json(), allow_nan=False))) == meta:
            return meta
        found = "it differs after a round trip through JSON."
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        found = str(error).rstrip(".") + "."
    raise DataError(f"The contract of '{meta.env.name}' cannot be stored: {found} Correct the EnvSpec.")


def _json(info: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy of `info`, checked at the start of an episode instead of at its end."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(info or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"`info` must be JSON: {error}. Give text, finite numbers, lists and dicts."
        ) from error
    return copy
