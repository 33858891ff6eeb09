"""Lock of a folder: one writing process; its death releases the lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from robo_rl.core.errors import LockedError
from robo_rl.core.files.lock import LOCK_FILE, FolderLock

HOLD = (
    "import sys; from robo_rl.core.files.lock import FolderLock\n"
    "lock = FolderLock(sys.argv[1], 'run'); print('held', flush=True); sys.stdin.read()"
)


def _holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_refused_until_the_holder_dies(tmp_path: Path) -> None:
    """The sentence names the process; SIGKILL frees the folder, and no file has to be deleted by hand."""
    with _holder(tmp_path) as other:
        with pytest.raises(LockedError, match=rf"in use by process {other.pid} \(-c .*choose another run\."):
            FolderLock(tmp_path, "run")
        other.send_signal(signal.SIGKILL)
        other.wait()
    FolderLock(tmp_path, "run").close()


def test_the_last_release_of_a_process_frees_the_folder(tmp_path: Path) -> None:
    """A record lock ends when any descriptor of its file is closed: locking twice must not release it."""
    first, second = FolderLock(tmp_path, "run"), FolderLock(tmp_path, "run")
    second.close()
    second.close()
    assert _refused(tmp_path)
    first.close()
    assert not _refused(tmp_path)


def test_a_forked_child_does_not_hold_it(tmp_path: Path) -> None:
    """Data loaders may outlive a killed trainer by seconds: the run can be resumed at once."""
    lock = FolderLock(tmp_path, "run")
    if (child := os.fork()) == 0:
        lock.close()  # as at the end of the child
        signal.pause()
    assert _refused(tmp_path)
    lock.close()
    assert not _refused(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_foreign_lock_file_is_named(tmp_path: Path) -> None:
    with _holder(tmp_path):
        (tmp_path / LOCK_FILE).write_text("?")
        with pytest.raises(LockedError, match="in use by another process"):
            FolderLock(tmp_path, "run")


def _refused(folder: Path) -> bool:
    code = "import sys; from robo_rl.core.files.lock import FolderLock; FolderLock(sys.argv[1], 'run')"
    return subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True).returncode != 0
