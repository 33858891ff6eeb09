"""C source text of an exported network. `name_` and `NAME_` in it are placeholders for the user's prefix."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from torch import Tensor

_LINE = 116  # characters of C per line

_HEAD = """
#ifndef NAME_H
#define NAME_H

#ifdef __FAST_MATH__
#error "-ffast-math lets a compiler assume that NaN does not exist, but the self test must detect NaN."
#endif

#include <math.h>
#include <stdint.h>
"""

_END = "#endif /* NAME_H */"

_LAYER = """
static inline void name_layer(const float *weight, const float *bias, int inputs, int outputs, const float *x,
                              float *y) {
  for (int row = 0; row < outputs; ++row) {
    float sum = bias[row];
    for (int column = 0; column < inputs; ++column) {
      sum += weight[row * inputs + column] * x[column];
    }
    y[row] = tanhf(sum);
  }
}
"""

_SELF_TEST = """
/* 0 if every stored example gives its output within 1e-5, else the number (from 1) of the first failure. */
static inline int name_self_test(void) {
  for (int example = 0; example < NAME_EXAMPLES; ++example) {
    float action[NAME_ACTIONS];
    name_act(name_example_obs + example * NAME_OBS, action);
    for (int i = 0; i < NAME_ACTIONS; ++i) {
      const float off = action[i] - name_example_action[example * NAME_ACTIONS + i];
      if (!(off <= 1e-5f && off >= -1e-5f)) { /* written so that NaN fails, too */
        return example + 1;
      }
    }
  }
  return 0;
}
"""

_CRC_PART = """
/* Volatile, so that the bytes are read from memory and the compiler cannot compute the result in advance. */
static inline uint32_t name_crc_part(uint32_t crc, const float *values, int count) {
  const volatile unsigned char *bytes = (const volatile unsigned char *)values;
  for (int i = 0; i < 4 * count; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
    }
  }
  return crc;
}
"""

_FLIGHT = """
/* Memory of the policy: one per craft, reset before the policy takes over. */
typedef struct {
#if NAME_HISTORY > 0
  float actions[4 * NAME_HISTORY]; /* the newest first */
#endif
#if NAME_INTEGRAL
  float integral_m_s[3]; /* of the position error */
#endif
#if NAME_HISTORY == 0 && !NAME_INTEGRAL
  char nothing; /* C has no empty struct */
#endif
} name_state;

static inline void name_reset(name_state *state) {
  (void)state;
#if NAME_HISTORY > 0
  for (int i = 0; i < 4 * NAME_HISTORY; ++i) state->actions[i] = NAME_HOVER_ACTION;
#endif
#if NAME_INTEGRAL
  for (int i = 0; i < 3; ++i) state->integral_m_s[i] = 0.0f;
#endif
}

/* Once per control period: the action that was sent, and the position at its end, relative to the goal. */
static inline void name_remember(name_state *state, const float action[4], const float position_m[3]) {
  (void)state, (void)action, (void)position_m;
#if NAME_HISTORY > 0
  for (int i = 4 * NAME_HISTORY - 1; i >= 4; --i) state->actions[i] = state->actions[i - 4];
  for (int i = 0; i < 4; ++i) state->actions[i] = action[i];
#endif
#if NAME_INTEGRAL
  for (int i = 0; i < 3; ++i) {
    const float sum = state->integral_m_s[i] + NAME_DT_S * position_m[i];
    state->integral_m_s[i] = sum < -NAME_INTEGRAL_LIMIT ? -NAME_INTEGRAL_LIMIT
                             : sum > NAME_INTEGRAL_LIMIT ? NAME_INTEGRAL_LIMIT : sum;
  }
#endif
}

/* Position relative to the goal [m, world], body -> world as a unit quaternion (w x y z), velocity
   [m/s, world], rates [rad/s, body] -> observation. World: z up (ENU); body: x forward, y left, z up. */
static inline void name_observe(const name_state *state, const float position_m[3], const float quat_wxyz[4],
                                const float velocity_m_s[3], const float rates_rad_s[3],
                                float obs[NAME_OBS]) {
  const float w = quat_wxyz[0], x = quat_wxyz[1], y = quat_wxyz[2], z = quat_wxyz[3];
  (void)state;
  obs[3] = 1.0f - 2.0f * (y * y + z * z);
  obs[4] = 2.0f * (x * y - w * z);
  obs[5] = 2.0f * (x * z + w * y);
  obs[6] = 2.0f * (x * y + w * z);
  obs[7] = 1.0f - 2.0f * (x * x + z * z);
  obs[8] = 2.0f * (y * z - w * x);
  obs[9] = 2.0f * (x * z - w * y);
  obs[10] = 2.0f * (y * z + w * x);
  obs[11] = 1.0f - 2.0f * (x * x + y * y);
  for (int i = 0; i < 3; ++i) {
    obs[i] = position_m[i];
    obs[12 + i] = velocity_m_s[i];
    obs[15 + i] = rates_rad_s[i];
  }
#if NAME_HISTORY > 0
  for (int i = 0; i < 4 * NAME_HISTORY; ++i) obs[18 + i] = state->actions[i];
#endif
#if NAME_INTEGRAL
  for (int i = 0; i < 3; ++i) obs[18 + 4 * NAME_HISTORY + i] = state->integral_m_s[i];
#endif
}
"""

_INTRO = """
A policy exported by robo-rl for a microcontroller. Do not edit it: export again. Include it in one file only,
because every inclusion adds a copy of the weights. Before a flight, name_self_test() must be 0 and
name_weights_crc32() must be NAME_CRC32; otherwise the vehicle must not take off.
"""

_FLIGHT_USE = """
Flight, every NAME_DT_S seconds, after name_reset(&state) and with positions relative to the goal:

    name_observe(&state, position_m, quat_wxyz, velocity_m_s, rates_rad_s, obs);
    name_act(obs, action);           rotor i turns at 0.5 + 0.5 action[i] of its full speed
    ... one control period later, with the new position:
    name_remember(&state, action, position_m);

Rotors: front right, back right, back left, front left. "full speed", "thrust" and "spin" below are those of
the craft that the policy was trained for: a speed is a fraction of that full speed, not of another motor's
PWM range.
"""

# Program for verification: prints self test and checksum, then one action per observation from stdin.
MAIN = """
#include <stdio.h>
#include "HEADER"

int main(void) {
  const uint32_t found[2] = {(uint32_t)name_self_test(), name_weights_crc32()};
  float obs[NAME_OBS], action[NAME_ACTIONS];
  fwrite(found, sizeof found, 1, stdout);
  while (fread(obs, sizeof obs, 1, stdin) == 1) {
    name_act(obs, action);
    fwrite(action, sizeof action, 1, stdout);
  }
  return 0;
}
"""


def header(
    name: str,
    widths: Sequence[int],
    constants: Mapping[str, Tensor],
    values: Mapping[str, str | int],
    note: Mapping[str, str],
    flight: bool,
) -> str:
    """Text of the header.

    widths: of the input and of every layer. values: macros by name. note: lines of the comment at the top.
    flight: adds the functions that build the observation of a flight.
    """
    sizes = {key: constants[key].numel() for key in constants if not key.startswith("example_")}
    more = [_FLIGHT] if flight else []
    return assemble_header(
        name, constants, values, note, [_LAYER, act(widths)], sizes, more, _FLIGHT_USE if flight else ""
    )


def assemble_header(
    name: str,
    constants: Mapping[str, Tensor],
    values: Mapping[str, str | int],
    note: Mapping[str, str],
    network: Sequence[str],
    sizes: Mapping[str, int],
    more: Sequence[str] = (),
    use: str = "",
) -> str:
    """Header around a network that defines `name_act`. sizes: of the constants in the checksum, in order."""
    code = [_HEAD, "\n".join(f"#define NAME_{key} {value}" for key, value in values.items())]
    code += [table(key, part) for key, part in constants.items()]
    code += [*network, _SELF_TEST, _CRC_PART, weights_crc32(sizes), *more, _END]
    intro = with_prefix(_INTRO + use, name)
    return (
        comment(intro, note)
        + "\n\n"
        + with_prefix("\n\n".join(block.strip("\n") for block in code), name)
        + "\n"
    )


def with_prefix(text: str, name: str) -> str:
    return text.replace("NAME_", f"{name.upper()}_").replace("name_", f"{name}_")


def literal(value: float) -> str:
    """C literal with nine digits, which identify every float32, also subnormal ones."""
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def table(name: str, values: Tensor) -> str:
    """Constant array in row-major order."""
    flat = ", ".join(map(literal, values.flatten().tolist()))
    body = textwrap.fill(flat, _LINE, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return f"static const float name_{name}[{values.numel()}] = {{\n{body}\n}};"


def act(widths: Sequence[int]) -> str:
    """C code of the network: activations alternate between two buffers as wide as the widest layer."""
    last = len(widths) - 1
    buffers = "a[NAME_WIDEST], b[NAME_WIDEST]" if last > 1 else "a[NAME_WIDEST]"
    calls = [
        f"  name_layer(name_weight_{i}, name_bias_{i}, {widths[i - 1]}, {widths[i]}, {'ab'[(i - 1) % 2]}, "
        f"{'action' if i == last else 'ab'[i % 2]});"
        for i in range(1, last + 1)
    ]
    head = "static inline void name_act(const float obs[NAME_OBS], float action[NAME_ACTIONS]) {"
    scale = "  for (int i = 0; i < NAME_OBS; ++i) {\n    a[i] = obs[i] * name_scale[i];\n  }"
    what = "/* Observation -> action in [-1, 1]. The caller checks that the input is finite and recent. */"
    return "\n".join([what, head, f"  float {buffers};", scale, *calls, "}"])


def weights_crc32(sizes: Mapping[str, int]) -> str:
    """C function that computes the checksum of all weights, to be compared with NAME_CRC32."""
    lines = [f"  crc = name_crc_part(crc, name_{part}, {count});" for part, count in sizes.items()]
    what = "/* CRC-32 (zlib) of scale and weights in memory, little-endian; must equal NAME_CRC32. */"
    head = "static inline uint32_t name_weights_crc32(void) {\n  uint32_t crc = 0xFFFFFFFFu;"
    return "\n".join([what, head, *lines, "  return ~crc;\n}"])


def comment(text: str, note: Mapping[str, str]) -> str:
    """Block comment; comment delimiters inside the text are split."""
    wide = max(map(len, note), default=0) + 2
    lines = [
        textwrap.fill(
            f"{key}:".ljust(wide) + " ".join(value.split()), _LINE - 3, subsequent_indent=" " * wide
        )
        for key, value in note.items()
    ]
    body = re.sub(r"\*(?=/)|/(?=\*)", r"\g<0> ", "\n".join([text.strip("\n"), "", *lines]))
    return "/*\n" + "\n".join(f" * {line}".rstrip() for line in body.splitlines()) + "\n */"
