"""Export of a swarm policy as one self-contained C99 header, with attention over neighbours, for a
microcontroller.

The rules are those of `policies/c/export.py`: weights in flash, no malloc, no double, only tanhf and expf of
libm, stored examples and a checksum for verification. Neighbours and cylinders are processed one by one: the
softmax is computed online with a running maximum, so the stack does not grow with their number.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from policies.c import source as c
from policies.c.export import TOLERANCE, plain, run_header
from policies.flight.swarm import SwarmPolicy
from robo_rl.core.errors import CheckpointError
from robo_rl.core.files.durable import write_atomic
from robo_rl.core.seeding import generator
from robo_rl.core.shapes import Float

_LINEAR = """
static inline void name_linear(const float *weight, const float *bias, int inputs, int outputs,
                               const float *x, float *y) {
  for (int row = 0; row < outputs; ++row) {
    float sum = bias[row];
    for (int column = 0; column < inputs; ++column) {
      sum += weight[row * inputs + column] * x[column];
    }
    y[row] = sum;
  }
}

static inline void name_tanh(int count, float *x) {
  for (int i = 0; i < count; ++i) x[i] = tanhf(x[i]);
}
"""

# State of the online softmax per head: the largest logit, the sum, the weighted values.
_ATTEND = """
typedef struct {
  float most[NAME_HEADS], sum[NAME_HEADS], values[NAME_TOKEN];
} name_heads;

/* One neighbour: x holds rows of all `count` neighbours of its kind; last row: nearness, 0 if absent. */
static inline void name_attend(name_heads *heads, const float *weight, const float *context,
                               const float *query, const float *x, int rows, int count, int thing) {
  float token[2 * NAME_TOKEN]; /* key, then value */
  if (!(x[(rows - 1) * count + thing] > 0.0f)) return;
  for (int i = 0; i < 2 * NAME_TOKEN; ++i) {
    float sum = context[i];
    for (int row = 0; row < rows; ++row) sum += weight[i * rows + row] * x[row * count + thing];
    token[i] = tanhf(sum);
  }
  for (int head = 0; head < NAME_HEADS; ++head) {
    const int first = head * (NAME_TOKEN / NAME_HEADS), end = first + NAME_TOKEN / NAME_HEADS;
    float logit = 0.0f, share = 1.0f;
    for (int i = first; i < end; ++i) logit += query[i] * token[i];
    if (logit > heads->most[head]) {
      const float less = expf(heads->most[head] - logit);
      heads->sum[head] *= less;
      for (int i = first; i < end; ++i) heads->values[i] *= less;
      heads->most[head] = logit;
    } else {
      share = expf(logit - heads->most[head]);
    }
    heads->sum[head] += share;
    for (int i = first; i < end; ++i) heads->values[i] += share * token[NAME_TOKEN + i];
  }
}
"""

_ACT = """
/* Observation -> action in [-1, 1]. The caller checks that the input is finite and recent. */
static inline void name_act(const float obs[NAME_OBS], float action[NAME_ACTIONS]) {
  float seen[NAME_OWN], own[NAME_WIDTH + NAME_TOKEN], query[NAME_TOKEN], context[2 * NAME_TOKEN];
  float hidden[NAME_WIDTH];
  name_heads heads;
  for (int i = 0; i < NAME_OWN; ++i) seen[i] = obs[i] * name_scale[i];
  name_linear(name_own_weight, name_own_bias, NAME_OWN, NAME_WIDTH, seen, own);
  name_tanh(NAME_WIDTH, own);
  name_linear(name_query_weight, name_query_bias, NAME_WIDTH, NAME_TOKEN, own, query);
  /* a head may attend to nothing */
  for (int i = 0; i < NAME_HEADS; ++i) heads.most[i] = 0.0f, heads.sum[i] = 1.0f;
  for (int i = 0; i < NAME_TOKEN; ++i) heads.values[i] = 0.0f;
KINDS
  for (int i = 0; i < NAME_TOKEN; ++i) {
    own[NAME_WIDTH + i] = heads.values[i] / heads.sum[i / (NAME_TOKEN / NAME_HEADS)];
  }
  name_linear(name_hidden_weight, name_hidden_bias, NAME_WIDTH + NAME_TOKEN, NAME_WIDTH, own, hidden);
  name_tanh(NAME_WIDTH, hidden);
  name_linear(name_last_weight, name_last_bias, NAME_WIDTH, NAME_ACTIONS, hidden, action);
  name_tanh(NAME_ACTIONS, action);
}
"""

_KIND = """
  name_linear(name_context_{i}_weight, name_context_{i}_bias, NAME_WIDTH, 2 * NAME_TOKEN, own, context);
  for (int i = 0; i < {count}; ++i) {{
    name_attend(&heads, name_thing_{i}_weight, context, query, obs + {at}, {rows}, {count}, i);
  }}
"""


@dataclass(frozen=True, slots=True)
class CSwarm:
    """Properties of a header for the report."""

    file: str
    name: str
    macs: int  # multiply-accumulates per action, with all neighbours present
    flash_bytes: int  # of all constants, including the stored examples
    crc32: str  # of all weights as little-endian float32, in the order of the header

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def write_c_swarm(
    path: Path, name: str, policy: SwarmPolicy, examples: Float[Tensor, "k o"], note: Mapping[str, str]
) -> CSwarm:
    """Write the policy to `path`. All names in it begin with `name`, macros with `name` in capitals.

    Raises CheckpointError for weights that are not finite.
    """
    constants, obs = weights_of(policy), plain("examples", examples)
    answers = {"example_obs": obs, "example_action": _policy_outputs(policy, obs)}
    width, token, actions = policy.width, policy.token, policy.action_spec.dim
    crc = f"{_crc32(constants):08x}"
    macs = sum(
        part.numel() for key, part in constants.items() if key.endswith("weight") and "thing" not in key
    )
    macs += sum(count * (rows * 2 * token + 2 * token) for count, rows in policy.kinds)
    flash = 4 * sum(part.numel() for part in (*constants.values(), *answers.values()))
    macros: dict[str, str | int] = {
        "OBS": obs.shape[1], "OWN": policy.own_size, "WIDTH": width, "TOKEN": token, "HEADS": policy.heads,
        "ACTIONS": actions, "MACS": macs, "EXAMPLES": len(obs), "CRC32": f"0x{crc}u",
    }  # fmt: skip
    cost = f"{macs} multiply-accumulates, {flash} bytes of flash"
    about = {
        **note,
        "network": f"attention of {policy.heads} heads, width {width}: {cost}",
        "weights": f"CRC-32 {crc}",
    }
    sizes = {key: part.numel() for key, part in constants.items()}
    body = [_LINEAR, _ATTEND, _ACT.replace("KINDS", _kinds(policy))]
    write_atomic(path, c.assemble_header(name, {**constants, **answers}, macros, about, body, sizes).encode())
    return CSwarm(path.name, name, macs, flash, crc)


def verify_c_swarm(
    path: Path, name: str, policy: SwarmPolicy, num: int = 1000, tolerance: float = TOLERANCE
) -> float:
    """Compile the header, run its self test and `num` random observations; returns the largest difference to
    torch.

    In the observations half of the neighbours are absent. Raises as `policies.c.export.verify_c_header`.
    """
    obs = torch.randn(num, policy.obs_spec["state"].shape[0], generator=generator("c header"))
    failed, crc, found = run_header(path, name, obs)
    if failed:
        raise CheckpointError(f"{path.name} fails its self test at example {failed}. Write the header again.")
    if crc != (ours := _crc32(weights_of(policy))):
        raise CheckpointError(
            f"{path.name} holds other weights than these (CRC-32 {crc:08x}, expected {ours:08x}). Write it "
            "again."
        )
    worst = float((found.view(num, -1) - _policy_outputs(policy, obs)).abs().max())
    if not worst <= tolerance:  # also refuses NaN
        raise CheckpointError(f"{path.name} differs from torch by {worst:.2g}, allowed are {tolerance:.0e}.")
    return worst


def weights_of(policy: SwarmPolicy) -> dict[str, Tensor]:
    """Name -> values, in the order of the checksum."""
    found = {"scale": policy.scale}
    layers: dict[str, nn.Module] = {"own": policy.own, "query": policy.query}
    for i, (thing, context) in enumerate(zip(policy.things, policy.contexts, strict=True), 1):
        layers |= {f"thing_{i}": thing, f"context_{i}": context}
    layers |= {"hidden": policy.hidden, "last": policy.last}
    for key, layer in layers.items():
        found |= {f"{key}_{part}": value for part, value in layer.named_parameters()}
    return {key: plain(key, value) for key, value in found.items()}


def _kinds(policy: SwarmPolicy) -> str:
    """Calls for every kind of neighbour, in the order of the observation."""
    calls, at = [], policy.own_size
    for i, (count, rows) in enumerate(policy.kinds, 1):
        calls.append(_KIND.format(i=i, count=count, rows=rows, at=at).strip("\n"))
        at += count * rows
    return "\n".join(calls)


@torch.no_grad()
def _policy_outputs(policy: SwarmPolicy, obs: Float[Tensor, "b o"]) -> Float[Tensor, "b a"]:
    return policy.columns(obs.T.to(policy.scale.device)).T.cpu().contiguous()


def _crc32(constants: Mapping[str, Tensor]) -> int:
    return zlib.crc32(b"".join(part.numpy().astype("<f4").tobytes() for part in constants.values()))
