"""C++ of a column program: one loop over blocks of columns, in vectors of the machine's width.

GCC and Clang know vectors as types, so the loop is vectorised by its text, not by the optimiser. The source
has no headers, which take most of the time of compiling ordinary C++.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sim.compile.column_program import Program, Step
from sim.compile.column_trace import ColumnProgram

# Vectors per block: AVX-512, AVX2 and 128-bit vectors hold 16, 8 and 4 numbers.
PRELUDE = """\
#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX__)
#define W 8
#else
#define W 4
#endif
typedef float V __attribute__((vector_size(4 * W)));
typedef int M __attribute__((vector_size(4 * W)));
typedef float U __attribute__((vector_size(4 * W), aligned(4), may_alias));
#define FN static inline __attribute__((always_inline))
#define EACH(f, x) V r; for (int k = 0; k < W; ++k) r[k] = f(x[k]); return r;
FN V all(float x) { return x - (V){}; }
FN V load(const float* p) { return *(const U*)p; }
FN void store(float* p, V x) { *(U*)p = x; }
FN V most(V a, V b) { return ((a > b) | (a != a)) ? a : b; }
FN V least(V a, V b) { return ((a < b) | (a != a)) ? a : b; }
FN V root(V x) { EACH(__builtin_sqrtf, x) }
FN V below(V x) { EACH(__builtin_floorf, x) }
FN V size(V x) { return (V)((M)x & 0x7fffffff); }
FN V sign(V x) { return (x > 0 ? all(1) : all(0)) - (x < 0 ? all(1) : all(0)); }
FN V remainder_of(V x, V y) {
  V r = x - y * below(x / y);
  r = r < 0 ? r + y : r;
  return r >= y ? r - y : r;
}
// The functions below are those of Moshier's Cephes library, in single precision.
FN V wave(V x, V shift) {  // sine of x, or cosine with shift 1
  V q = below(size(x) * 0.636619772f + 0.5f);
  V y = ((size(x) - q * 1.5703125f) - q * 4.837512969970703125e-4f) - q * 7.54978995489188e-8f;
  V z = y * y, k = q + shift;
  V s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * y + y;
  V c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z
        - 0.5f * z + 1.0f;
  k = k - 4.0f * below(k * 0.25f);
  V r = ((k == 1) | (k == 3)) ? c : s;
  r = k >= 2 ? -r : r;
  return ((shift == 0) & (x < 0)) ? -r : r;
}
FN V sine(V x) { return wave(x, all(0)); }
FN V cosine(V x) { return wave(x, all(1)); }
FN V power_of_2(V n) {  // of a whole number, in two factors, as its own exponent may be out of range
  M half = __builtin_convertvector(n * 0.5f, M), rest = __builtin_convertvector(n, M) - half;
  return (V)((half + 127) << 23) * (V)((rest + 127) << 23);
}
FN V exponential(V x) {
  V in = least(most(x, all(-87.3f)), all(88.7f));
  V n = below(in * 1.44269504088896341f + 0.5f);
  V y = (in - n * 0.693359375f) - n * -2.12194440e-4f;
  V p = ((((1.9875691500e-4f * y + 1.3981999507e-3f) * y + 8.3334519073e-3f) * y + 4.1665795894e-2f) * y
         + 1.6666665459e-1f) * y + 5.0000001201e-1f;
  p = p * y * y + y + 1.0f;
  V r = p * power_of_2(n);
  r = x > 88.8f ? all(__builtin_inff()) : r;
  return x < -104.0f ? all(0) : r;
}
FN V exponential2(V x) {  // exact for whole numbers
  V in = least(most(x, all(-150)), all(129)), n = below(in);
  return exponential((in - n) * 0.693147180559945309f) * power_of_2(n);
}
FN V tangent(V x) {  // hyperbolic
  V z = x * x, e = exponential(2.0f * size(x)), far = 1.0f - 2.0f / (e + 1.0f);
  V near = ((((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z
             + 1.33314422036e-1f) * z - 3.33332819422e-1f) * z * x + x;
  return size(x) < 0.625f ? near : (x < 0 ? -far : far);
}
"""
_FORMULAS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
    "less": "{} < {}", "greater": "{} > {}", "at_most": "{} <= {}", "at_least": "{} >= {}",
    "equal": "{} == {}", "differs": "{} != {}", "and": "{} & {}", "or": "{} | {}", "not": "~{}",
    "where": "{} ? {} : {}", "max": "most({}, {})", "min": "least({}, {})", "abs": "size({})",
    "sqrt": "root({})", "rsqrt": "1.0f / root({})", "reciprocal": "1.0f / {}", "sin": "sine({})",
    "cos": "cosine({})", "exp": "exponential({})", "exp2": "exponential2({})",
    "tanh": "tangent({})", "floor": "below({})",
    "sign": "sign({})", "remainder": "remainder_of({}, {})",
}  # fmt: skip


def source_of(traced: ColumnProgram) -> str:
    """Source of `run(inputs, outputs, columns)`. It does not depend on the number of columns, at least W."""
    program = traced.program
    used = used_steps(program, [i for rows in traced.outputs for i in rows])
    shared = [i for i in used if program.steps[i].uniform]
    own = [i for i in used if not program.steps[i].uniform]
    lines = ["extern \"C\" const long width = W;",
             'extern "C" void run(const float* const* in, float* const* out, long n) {']  # fmt: skip
    numbers = sorted(
        {int(s.args[0]) for s in map(program.steps.__getitem__, used) if s.op in ("load", "uniform")}
    )
    lines += [f"const float* __restrict i{k} = in[{k}];" for k in numbers]
    lines += [f"float* __restrict o{k} = out[{k}];" for k in range(len(traced.outputs))]
    lines += [_line(program, i) for i in shared]
    lines += ["for (long at = 0; at < n; at += W) {", "long j = at + W <= n ? at : n - W;"]
    lines += list(_body(program, own, traced.outputs))
    return PRELUDE + "\n".join([*lines, "}", "}", ""])


def _body(program: Program, own: list[int], outputs: list[list[int]]) -> Iterator[str]:
    """Lines of one block. A result is stored as soon as it is known, so that its register is free."""
    places = result_places(outputs)
    for i in own:
        yield _line(program, i)
        for k, row in places.pop(i, []):
            yield f"store(o{k} + {row} * n + j, x{i});"
    for i, rest in places.items():
        for k, row in rest:
            yield f"store(o{k} + {row} * n + j, x{i});"


def result_places(outputs: list[list[int]]) -> dict[int, list[tuple[int, int]]]:
    """Per expression that is a result, the (output, row) pairs that it fills."""
    places: dict[int, list[tuple[int, int]]] = {}
    for k, rows in enumerate(outputs):
        for row, i in enumerate(rows):
            places.setdefault(i, []).append((k, row))
    return places


def used_steps(program: Program, wanted: list[int]) -> list[int]:
    """Expressions that the wanted ones depend on, in order."""
    needed, rest = set[int](), list(wanted)
    while rest:
        i = rest.pop()
        if i not in needed:
            needed.add(i)
            rest += _inputs(program.steps[i])
    return sorted(needed)


def _inputs(step: Step) -> list[int]:
    return [] if step.op in ("const", "bool", "load", "uniform") else [int(i) for i in step.args]


def _line(program: Program, i: int) -> str:
    step = program.steps[i]
    kind = "M" if program.is_mask(i) else "V"
    if step.op == "const":
        return f"const V x{i} = all({_literal(int(step.args[0]))});"
    if step.op == "bool":
        return f"const M x{i} = (M){{}} - {step.args[0]};"
    if step.op == "load":
        return f"const V x{i} = load(i{step.args[0]} + {step.args[1]} * n + j);"
    if step.op == "uniform":
        return f"const V x{i} = all(i{step.args[0]}[{step.args[1]}]);"
    return f"const {kind} x{i} = {_FORMULAS[step.op].format(*(f'x{a}' for a in step.args))};"


def _literal(bits: int) -> str:
    value = struct.unpack("f", struct.pack("I", bits))[0]
    if value != value:
        return '__builtin_nanf("")'
    if value in (float("inf"), float("-inf")):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    return f"{float(value).hex()}f" if value == value else ""
