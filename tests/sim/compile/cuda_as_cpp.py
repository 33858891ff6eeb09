"""A GPU's driver on the CPU: CUDA code of a column program as C++, block after block, thread after thread."""

from __future__ import annotations

import ctypes
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from robo_rl.core.files.machine_code import cpp_compiler
from sim.compile import cuda_build
from sim.compile.column_build import Run
from sim.compile.column_trace import ColumnProgram
from sim.compile.cuda_code import cuda_source_of

STREAM = 0x7FFF00000007
SHIM = """\
#include <cmath>
#include <cstring>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
struct Place { unsigned x; };
static Place blockIdx, blockDim, threadIdx;
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static float __uint_as_float(unsigned bits) { float x; std::memcpy(&x, &bits, 4); return x; }
"""
DRIVER = """\
extern "C" int cuModuleLoadData(void** module, const char* code) {
  *module = (void*)1;
  return code[0] != 'x';
}
extern "C" int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = (void*)2;
  return module != (void*)1 || std::strcmp(name, "run");
}
extern "C" int cuGetErrorString(int, const char** said) { *said = "refused"; return 0; }
extern "C" int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, void* stream, void** given, void** extra) {
  if (function != (void*)2 || gy * gz * by * bz != 1 || shared || extra || stream != (void*)STREAM) return 1;
  blockDim.x = bx;
  for (blockIdx.x = 0; blockIdx.x < gx; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < bx; ++threadIdx.x) run(GIVEN);
  return 0;
}
"""


def load_as_cpp(traced: ColumnProgram, folder: Path, patch: pytest.MonkeyPatch) -> Run:
    """The function that `load_cuda` makes, with this driver."""
    kinds = ["float*"] * (len(traced.inputs) + len(traced.outputs)) + ["long long"]
    given = ", ".join(f"*({kind}*)given[{k}]" for k, kind in enumerate(kinds))
    driver = DRIVER.replace("GIVEN", given).replace("STREAM", hex(STREAM))
    path = folder / "columns.so"
    command = [cpp_compiler() or "g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-x", "c++", "-"]
    text = SHIM + cuda_source_of(traced) + driver
    subprocess.run([*command, "-o", str(path)], input=text, text=True, check=True)
    code = folder / "columns.cubin"
    code.write_bytes(b"x")
    library = ctypes.CDLL(str(path))
    patch.setattr(cuda_build, "_driver", lambda: library)
    patch.setattr(torch.cuda, "device", nullcontext)
    patch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=1))
    patch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=STREAM))
    return cuda_build.load_cuda(code, traced, torch.device("cpu"))
