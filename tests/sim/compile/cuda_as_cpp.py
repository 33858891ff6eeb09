"""CUDA code of a column program run on the CPU: the same text, compiled as C++, column after column."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import torch
from torch import Tensor

from sim.compile.column_build import cpp_compiler
from sim.compile.column_trace import ColumnProgram
from sim.compile.cuda_code import cuda_source_of

SHIM = """\
#include <cmath>
#include <cstring>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
struct Place { long long x; };
static Place blockIdx, blockDim = {1}, threadIdx = {0};
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static float __uint_as_float(unsigned bits) { float x; std::memcpy(&x, &bits, 4); return x; }
"""


def run_as_cpp(traced: ColumnProgram, inputs: list[Tensor], folder: Path) -> list[Tensor]:
    """Results of every column, of which each is one block of one thread; one block more must do nothing."""
    source = cuda_source_of(traced)
    given = [f"in[{k}]" for k in range(len(inputs))] + [f"out[{k}]" for k in range(len(traced.outputs))]
    loop = (
        'extern "C" void each(const float* const* in, float* const* out, long long n) {\n'
        f"for (blockIdx.x = 0; blockIdx.x <= n; ++blockIdx.x) run({', '.join([*given, 'n'])});\n}}\n"
    )
    path = folder / "columns.so"
    command = [cpp_compiler() or "g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-x", "c++", "-"]
    subprocess.run([*command, "-o", str(path)], input=SHIM + source + loop, text=True, check=True)
    made = [torch.full(shape, torch.inf) for shape in traced.shapes]
    addresses = [[x.data_ptr() for x in tensors] for tensors in (inputs, made)]
    arrays = [(ctypes.c_void_p * len(each))(*each) for each in addresses]
    ctypes.CDLL(str(path)).each(*arrays, ctypes.c_longlong(traced.columns))
    return made
