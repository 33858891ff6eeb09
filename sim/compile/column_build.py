"""Machine code of a column program, built by the C++ compiler in about a second and cached on disk."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import pad

from sim.compile.column_code import source_of
from sim.compile.column_trace import ColumnProgram
from sim.compile.kernel_build import no_build, stopped_at_once

FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-w", "-fno-math-errno", "-fno-trapping-math",
         "-ffp-contract=fast")  # fmt: skip
UNITS = {  # what torch says that the processor can do -> the vector instructions to use
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma"),
    "AVX2": ("-mavx2", "-mfma"),
}
Run = Callable[[list[Tensor]], Sequence[Tensor]]


def cpp_compiler() -> str | None:
    """Path of the C++ compiler: $CXX, else the first of g++, clang++ and c++; None without one."""
    names = [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name]
    return next((path for path in map(shutil.which, names) if path), None)


def column_source(traced: ColumnProgram) -> tuple[str, str]:
    """(source, name of its file): a hash of everything that the machine code depends on."""
    source = source_of(traced)
    text = "\n".join([source, *_flags()])
    return source, hashlib.sha256(text.encode()).hexdigest()[:24]


def build_columns(source: str, path: Path) -> None:
    """Compile to `path` atomically.

    Raises EnvError when the compiler fails, KeyboardInterrupt when Ctrl-C or SIGTERM ends the wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}-{os.getpid()}.so")
    command = [cpp_compiler() or "g++", *_flags(), "-x", "c++", "-", "-o", str(partial)]
    try:
        with stopped_at_once():
            done = subprocess.run(command, input=source, text=True, capture_output=True)
        if done.returncode:
            raise no_build(done.stderr or f"{command[0]} ended with code {done.returncode}")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_columns(path: Path, traced: ColumnProgram) -> Run:
    """The compiled function of the inputs that it was traced with, or of others with as many columns."""
    library, count = ctypes.CDLL(str(path)), traced.columns
    width = ctypes.c_long.in_dll(library, "width").value
    call, shapes, columns = library.run, traced.shapes, ctypes.c_long(max(count, width))
    outside = [(*shape[:-1], columns.value) for shape in shapes]
    pointers = [ctypes.c_void_p * size for size in (len(traced.inputs), len(shapes))]

    def run(inputs: list[Tensor]) -> list[Tensor]:
        made = [torch.empty(shape) for shape in outside]
        call(
            pointers[0](*[x.data_ptr() for x in inputs]), pointers[1](*[x.data_ptr() for x in made]), columns
        )
        return made

    def run_few(inputs: list[Tensor]) -> list[Tensor]:
        wide = [
            pad(x, (0, width - count)).contiguous() if full else x
            for x, full in zip(inputs, traced.inputs, strict=True)
        ]
        return [x[..., :count].contiguous() for x in run(wide)]

    return run if count >= width else run_few


def _flags() -> tuple[str, ...]:
    return (*FLAGS, *UNITS.get(torch.backends.cpu.get_cpu_capability(), ()))
