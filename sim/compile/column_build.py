"""Machine code of a column program, built by the C++ compiler in about a second and cached on disk."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import pad

from robo_rl.core.files.machine_code import build_library, library_path
from sim.compile.column_code import source_of
from sim.compile.column_trace import ColumnProgram

FLAGS = ("-O2",)
Run = Callable[[list[Tensor]], Sequence[Tensor]]


def column_source(traced: ColumnProgram) -> tuple[str, Path]:
    """(source, place of its machine code)."""
    source = source_of(traced)
    return source, library_path(source, FLAGS)


def build_columns(source: str, path: Path) -> None:
    """Compile to `path`, see `build_library`."""
    build_library(source, path, FLAGS, "the simulator")


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
