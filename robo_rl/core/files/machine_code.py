"""Machine code from C++ text, built once per machine in about a second and cached on disk."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from robo_rl.core.errors import EnvError
from robo_rl.core.files.path_error import DISK_FULL
from robo_rl.core.process_signals import ended_by

FLAGS = (
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-w",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
UNITS = {  # what torch says that the processor can do -> the vector instructions to use
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma"),
    "AVX2": ("-mavx2", "-mfma"),
}
_OTHER_FOLDER = "Set the environment variable ROBO_RL_CACHE to a folder that can be written."


def cache_folder() -> Path:
    """Folder of cached files: ROBO_RL_CACHE, else $XDG_CACHE_HOME/robo-rl, else ~/.cache/robo-rl.

    Raises EnvError for a user without a home folder.
    """
    if chosen := os.environ.get("ROBO_RL_CACHE"):
        return Path(chosen)
    if above := os.environ.get("XDG_CACHE_HOME"):
        return Path(above) / "robo-rl"
    try:
        return Path.home() / ".cache" / "robo-rl"
    except RuntimeError as error:  # HOME is not set, and the system knows no user of this number
        raise EnvError(f"This user has no home folder for compiled code. {_OTHER_FOLDER}") from error


def make_cache_folder(folder: Path) -> None:
    """Make a folder for files of the cache. Raises EnvError that names ROBO_RL_CACHE if it is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise EnvError(
            f"Compiled code cannot be kept in {folder} ({error.strerror}). {_OTHER_FOLDER}"
        ) from error


def cpp_compiler() -> str | None:
    """Path of the C++ compiler: $CXX, else the first of g++, clang++ and c++; None without one."""
    names = [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name]
    return next((path for path in map(shutil.which, names) if path), None)


def library_path(source: str, more: Sequence[str]) -> Path:
    """Place of the machine code of this text: its name is a hash of everything that the code depends on.

    more: flags beside those that all machine code has.
    """
    text = "\n".join([source, *_flags(more)])
    return cache_folder() / "kernels" / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"


def build_library(source: str, path: Path, more: Sequence[str], what: str) -> None:
    """Compile to `path` atomically. what: for the message of a failure.

    Raises EnvError when the compiler or the folder fails, KeyboardInterrupt when Ctrl-C or SIGTERM ends the
    wait.
    """
    make_cache_folder(path.parent)
    partial = path.with_name(f".{path.stem}-{os.getpid()}.so")
    command = [cpp_compiler() or "g++", *_flags(more), "-x", "c++", "-", "-o", str(partial)]
    try:
        with stopped_at_once():
            done = subprocess.run(command, input=source, text=True, capture_output=True)
        if done.returncode:
            raise no_build(done.stderr or f"{command[0]} ended with code {done.returncode}", what)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def no_build(output: str, what: str) -> EnvError:
    """Error of a failed build. output: of the compiler, of which the last error is shown."""
    errors = [line.strip() for line in output.splitlines() if "error" in line.lower()]
    return EnvError(
        f"The C++ compiler could not build {what}: {errors[-1] if errors else output}. Check that "
        "`g++ --version` works and that 1 GB of memory is free, and start again."
    )


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt at once.

    Ctrl-C also ends the compiler: if the signal were handled later, its exit would be taken for a failed
    build.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in ended_by()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _flags(more: Sequence[str]) -> tuple[str, ...]:
    return (*FLAGS, *more, *UNITS.get(torch.backends.cpu.get_cpu_capability(), ()))
