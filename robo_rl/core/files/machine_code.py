"""Machine code from C++ text, built once per machine in about a second and cached on disk."""

from __future__ import annotations

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


def cache_folder() -> Path:
    """Folder of cached files: ROBO_RL_CACHE, else $XDG_CACHE_HOME/robo-rl, else ~/.cache/robo-rl."""
    if chosen := os.environ.get("ROBO_RL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "robo-rl"


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

    Raises EnvError when the compiler fails, KeyboardInterrupt when Ctrl-C or SIGTERM ends the wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
