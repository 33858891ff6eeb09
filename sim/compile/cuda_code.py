"""CUDA C++ of a column program: one thread per column, plain numbers.

Neighbouring threads read neighbouring columns, so all reads and writes are coalesced. The source has no
headers: NVRTC knows the mathematical functions of a device.
"""

from __future__ import annotations

import struct

from sim.compile.column_code import result_places, used_steps
from sim.compile.column_program import Program
from sim.compile.column_trace import ColumnProgram

THREADS = 256  # most threads of a block

PRELUDE = """\
#define FN static __device__ __forceinline__
FN float most(float a, float b) { return (a > b || a != a) ? a : b; }
FN float least(float a, float b) { return (a < b || a != a) ? a : b; }
FN float sign(float x) { return (x > 0.0f ? 1.0f : 0.0f) - (x < 0.0f ? 1.0f : 0.0f); }
FN float remainder_of(float x, float y) {
  float r = x - y * floorf(x / y);
  r = r < 0.0f ? r + y : r;
  return r >= y ? r - y : r;
}
"""
_FORMULAS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
    "less": "{} < {}", "greater": "{} > {}", "at_most": "{} <= {}", "at_least": "{} >= {}",
    "equal": "{} == {}", "differs": "{} != {}", "and": "{} & {}", "or": "{} | {}", "not": "!{}",
    "where": "{} ? {} : {}", "max": "most({}, {})", "min": "least({}, {})", "abs": "fabsf({})",
    "sqrt": "sqrtf({})", "rsqrt": "rsqrtf({})", "reciprocal": "1.0f / {}", "sin": "sinf({})",
    "cos": "cosf({})", "exp": "expf({})", "exp2": "exp2f({})", "tanh": "tanhf({})", "floor": "floorf({})",
    "sign": "sign({})", "remainder": "remainder_of({}, {})",
}  # fmt: skip


def cuda_source_of(traced: ColumnProgram) -> str:
    """Source of `run(inputs ..., outputs ..., columns)`, which does not depend on the number of columns."""
    program, outputs = traced.program, traced.outputs
    inputs = [f"const float* __restrict__ i{k}" for k in range(len(traced.inputs))]
    given = [*inputs, *(f"float* __restrict__ o{k}" for k in range(len(outputs))), "const long long n"]
    lines = [
        f'extern "C" __global__ void __launch_bounds__({THREADS}) run({", ".join(given)}) {{',
        "const long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x;",
        "if (j >= n) return;",
    ]
    places = result_places(outputs)
    for i in used_steps(program, list(places)):
        lines.append(_line(program, i))
        lines += [f"o{k}[{row} * n + j] = {_as_number(program, i)};" for k, row in places.get(i, [])]
    return PRELUDE + "\n".join([*lines, "}", ""])


def _as_number(program: Program, i: int) -> str:
    return f"x{i} ? 1.0f : 0.0f" if program.is_mask(i) else f"x{i}"


def _line(program: Program, i: int) -> str:
    step = program.steps[i]
    kind = "bool" if program.is_mask(i) else "float"
    if step.op == "const":
        value = _literal(int(step.args[0]))
    elif step.op == "bool":
        value = "true" if step.args[0] else "false"
    elif step.op == "load":
        value = f"i{step.args[0]}[{step.args[1]} * n + j]"
    elif step.op == "uniform":
        value = f"i{step.args[0]}[{step.args[1]}]"
    else:
        value = _FORMULAS[step.op].format(*(f"x{a}" for a in step.args))
    return f"const {kind} x{i} = {value};"


def _literal(bits: int) -> str:
    """A float32 by its bits, where it has no decimal form."""
    value = struct.unpack("f", struct.pack("I", bits))[0]
    if value != value or value in (float("inf"), float("-inf")):
        return f"__uint_as_float({bits}u)"
    return f"{float(value).hex()}f"
