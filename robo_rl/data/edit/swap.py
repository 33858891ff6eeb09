"""Replacement of a dataset by an edited copy: at every instant its path holds the old or the new state.

1. A copy beside the dataset, `.<name>.editing`: files of episodes are hard links and need almost no
   space.
2. The edit changes the copy only, where it replaces links by new files; then the copy is made durable.
3. One system call exchanges both folders. The old state is now in `.<name>.editing`.
4. The old state becomes `.<name>.undo`, and the one that was there before is deleted last.

A file system that cannot exchange two folders gets two renames; a kill between them leaves no dataset under
its path, which the next edit or `robo-rl data repair` puts right.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copy2, rmtree
from typing import Any

from robo_rl.core.errors import DataError, LockedError
from robo_rl.core.files.durable import exchange, fsync_dir
from robo_rl.core.files.lock import LOCK_FILE, FolderLock
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.edit.log import append_edit, read_edits, state_of
from robo_rl.data.episodes.commit import LOCK, staging_lock
from robo_rl.data.episodes.disk import report_full_disk
from robo_rl.data.episodes.recover import leftovers
from robo_rl.data.episodes.schema import DATASET_JSON, STAGING, DatasetMeta

_KEPT = re.compile(r"\.(.+)\.(undo|editing|former|deleted)")
# no hard links: another device, not supported, not permitted, too many links
_NO_LINKS = frozenset({errno.EXDEV, errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS})


@contextmanager
def edited_copy(path: str | Path, entry: Mapping[str, Any], *, keep_undo: bool = True) -> Iterator[Path]:
    """Context manager with a copy of a dataset to change. At the end of the block it replaces the dataset; if
    the block raises, the dataset is unchanged and no copy remains.

    entry: what is done, for the log. Raises LockedError while the dataset is written, also by this process,
    and DataError if it holds interrupted episodes, or if `path` is no dataset.
    """
    root = finish(path)
    with _held(root):
        before = state_of(root)
        copy = root.with_name(f".{root.name}.editing")
        try:
            with report_full_disk(root, "the edited copy"):
                _link_tree(root, copy)
                with FolderLock(copy, "dataset"):
                    yield copy
                    append_edit(copy, entry, before)
                    os.sync()  # the copy is complete on the disk before it gets the name
                    _exchange(copy, root)
                    _settle(root, keep_undo=keep_undo)
        except BaseException:
            if not _is_former(copy, root):
                rmtree(copy, ignore_errors=True)
            raise


def has_former_state(path: str | Path) -> bool:
    """True when the state of a dataset before its last edit is kept."""
    root = Path(path)
    return (root.with_name(f".{root.name}.undo") / DATASET_JSON).exists()


def undo_edit(path: str | Path, *, dry_run: bool = False) -> tuple[dict[str, Any], bool]:
    """Exchange a dataset and its state before the last edit. A second call restores the edit.

    Returns the edit's entry, and whether it is restored. Raises DataError without a former state, or if the
    dataset changed after the edit.
    """
    root = finish(path)
    former = root.with_name(f".{root.name}.undo")
    if not (former / DATASET_JSON).exists():
        raise DataError(
            f"{root} has no former state: it was not edited, or with keep_undo=false. Nothing was changed."
        )
    with _held(root), FolderLock(former, "dataset"):
        entry, expected, restored = _last_step(root, former)
        if state_of(root) != expected:
            raise DataError(
                f"{root} has changed since its last edit, e.g. by new episodes, which undo would lose. "
                f"Nothing was changed. The former state is in {former}."
            )
        if not dry_run:
            _exchange(former, root)
            _settle(root)
    return entry, restored


def finish(path: str | Path) -> Path:
    """Finish an exchange that a kill interrupted, and delete an unfinished copy; returns the real path.

    Does nothing while another process edits the dataset. Raises DataError for a state that an edit keeps, and
    for a dataset that holds the working folder, which would be exchanged with it.
    """
    root = Path(path).resolve()
    if kept := _KEPT.fullmatch(root.name):
        raise DataError(
            f"{root} is a state of the dataset {root.with_name(kept[1])} kept by an edit. Give that."
        )
    if _working_folder().is_relative_to(root):
        raise DataError(
            f"The working folder is in the dataset {root}, which an edit replaces. Leave it first: "
            f"cd {shlex.quote(str(root.parent))}, then give the dataset by path={shlex.quote(root.name)}"
        )
    former, copy = (root.with_name(f".{root.name}.{kind}") for kind in ("former", "editing"))
    if not root.exists() and former.exists():
        former.rename(root)
        fsync_dir(root.parent)
    if any(each.exists() for each in (former, copy, root.with_name(f".{root.name}.deleted"))):
        DatasetMeta.load(root)
        try:
            with FolderLock(root, "dataset"):
                _settle(root)
        except LockedError:
            pass
    return root


def _working_folder() -> Path:
    """The working folder; the root if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def _last_step(root: Path, former: Path) -> tuple[dict[str, Any], str, bool]:
    """Entry of the last edit, the state that the edit or its undo has left in `root`, and if it is undone."""
    now, before = read_edits(root), read_edits(former)
    undone = len(now) <= len(before)
    entry = dict((before if undone else now)[-1])
    return entry, str(entry["before" if undone else "after"]), undone


@contextmanager
def _held(root: Path) -> Iterator[None]:
    """Hold a dataset for an edit. Raises DataError or LockedError if it is written, has interrupted episodes,
    or cannot be exchanged.
    """
    DatasetMeta.load(root)
    if is_mount_point(root):
        raise DataError(
            f"{root} is a mount point, which an edit cannot exchange for the edited copy. Nothing was "
            f"changed. Move the dataset into a folder below it: {root / 'recorded'}"
        )
    with FolderLock(root, "dataset") as lock, staging_lock(root, exclusive=True):
        if lock.is_shared:
            raise LockedError(f"This process writes {root}: close its DatasetWriter, then edit the dataset.")
        if waiting := leftovers(root):
            raise DataError(
                f"{root} holds {counted(len(waiting), 'interrupted episode')}, which an edit would lose. "
                f"Recover first: {command('data validate', path=root, recover=True)}"
            )
        yield


def is_mount_point(root: Path) -> bool:
    """True for a folder on which a file system or another folder is mounted, as on volumes of a container."""
    if os.path.ismount(root):
        return True
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:  # not Linux: a folder of the same file system that is mounted there is not seen
        return False
    return any(_unescaped(line.split(b" ")[4]) == os.fsencode(root) for line in lines)


def _unescaped(path: bytes) -> bytes:
    """Path of a line of mountinfo, where blanks are octal numbers."""
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), path)


def _link_tree(root: Path, copy: Path) -> None:
    """Copy of a dataset: files of episodes are linked, all others copied; staging/ is empty."""
    if copy.exists():
        rmtree(copy)
    copy.mkdir()
    for entry in sorted(root.iterdir()):
        if entry.name == STAGING:
            (copy / STAGING).mkdir()
            (copy / STAGING / LOCK).touch()
        elif entry.is_dir():
            _link_folder(entry, copy / entry.name)
        elif entry.name != LOCK_FILE:
            copy2(entry, copy / entry.name)


def _link_folder(source: Path, target: Path) -> None:
    target.mkdir()
    for entry in sorted(source.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            _link_folder(entry, target / entry.name)
        elif entry.is_file() or entry.is_symlink():
            _link(entry, target / entry.name)


def _link(source: Path, target: Path) -> None:
    """Hard link, or a copy where the file system has none. A symbolic link stays one, with its target."""
    if source.is_symlink():
        target.symlink_to(os.path.abspath(source.parent / source.readlink()))
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        copy2(source, target)


def _exchange(new: Path, root: Path) -> None:
    """Swap the new state and the dataset. The old state is then in `new`, or in `.<name>.former`."""
    if not exchange(new, root):
        former = root.with_name(f".{root.name}.former")
        root.rename(former)
        try:
            new.rename(root)
        except OSError:
            former.rename(root)
            raise
    fsync_dir(root.parent)


def _settle(root: Path, *, keep_undo: bool = True) -> None:
    """Step 4, also after a kill: the old state becomes the one for undo, an unfinished copy is deleted."""
    former, copy, undo, deleted = (
        root.with_name(f".{root.name}.{kind}") for kind in ("former", "editing", "undo", "deleted")
    )
    if deleted.exists():
        rmtree(deleted)
    if copy.exists() and _is_former(copy, root):
        copy.rename(former)
    if former.exists():
        if undo.exists():
            undo.rename(deleted)
        former.rename(undo if keep_undo else deleted)
        fsync_dir(root.parent)
    for leftover in (copy, deleted):
        if leftover.exists():
            rmtree(leftover)


def _is_former(copy: Path, root: Path) -> bool:
    """True if an exchange has happened: then `.editing` is one edit behind the dataset, not ahead of it."""
    return (copy / DATASET_JSON).exists() and len(read_edits(copy)) < len(read_edits(root))
