"""Atomic creation of a dataset: it appears under its path when it is complete, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from robo_rl.core.errors import DataError, DiskFullError
from robo_rl.core.files.durable import fsync_dir
from robo_rl.core.files.lock import FolderLock
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.disk import is_full, nothing_remains
from robo_rl.data.episodes.rehearsal import counted_dataset, current_rehearsal
from robo_rl.data.episodes.schema import DATASET_JSON, Codec


def refuse_existing(out: str | Path) -> None:
    """Raise DataError if `out` exists, or would lie inside a dataset."""
    if Path(out).exists():
        raise DataError(f"{out} exists already. Choose another path for the new dataset.")
    refuse_inside(out)


def refuse_inside(out: str | Path) -> None:
    """Raise DataError if `out` would lie inside a dataset, which is copied, moved and deleted as a whole."""
    for folder in Path(out).absolute().parents:
        if (folder / DATASET_JSON).exists():
            raise DataError(f"{out} would lie inside the dataset {folder}. Choose a path beside it.")


@contextmanager
def atomic_dataset(
    out: str | Path, env: EnvSpec, *, image_codec: Codec, stamps: tuple[str, ...], info: Mapping[str, Any]
) -> Iterator[DatasetWriter]:
    """Context manager with the writer of a new dataset. If the block raises, no dataset remains.

    Nothing is created inside a `rehearsal`. Raises DataError if `out` exists, DiskFullError on a full disk.
    """
    refuse_existing(out)
    target = Path(out)
    if (trial := current_rehearsal()) is not None:
        with counted_dataset(
            trial, target, env, image_codec=image_codec, stamps=stamps, info=info
        ) as counting:
            yield counting
        return
    partial = target.with_name(f".{target.name}.importing")
    if partial.exists():  # from an import that was killed, or that is running
        with FolderLock(partial, "dataset"):
            rmtree(partial)
    writer = DatasetWriter.create(
        partial, env, image_codec=image_codec, stamps=stamps, durable=False, info=info
    )
    try:
        yield writer
        os.sync()  # once instead of after every episode: the dataset does not exist before the rename
        partial.rename(target)
        fsync_dir(target.parent)
    except BaseException as error:
        rmtree(partial, ignore_errors=True)
        if isinstance(error, DiskFullError) or (isinstance(error, OSError) and is_full(error)):
            raise nothing_remains(out) from error
        raise
    finally:
        writer.close()
