"""Policies exported as C: time of one action on one core, error relative to torch, and size.

    python benchmarks/c_export.py

A network of 64-64 tanh: `c/mlp64`, a flight policy (53 observations, 4 motors), as gcc -O2 builds it for this
machine. Time is CPU time of one thread.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser
from torch import Tensor

from policies.c.export import FLAGS, verify_c_header, write_c_header

WIDTHS = {"mlp64": (53, 64, 64, 4)}
AIM_US = 15.0
MAIN = """
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "policy.h"

int main(int argc, char **argv) {
  const long calls = argc > 1 ? atol(argv[1]) : 1;
  float obs[POLICY_OBS], action[POLICY_ACTIONS];
  struct timespec begin, end;
  float sum = 0.0f;
  for (int i = 0; i < POLICY_OBS; ++i) obs[i] = 0.01f * (float)i;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  for (long call = 0; call < calls; ++call) {
    policy_act(obs, action);
    obs[call % POLICY_OBS] = action[0]; /* the next call needs this one's answer */
    sum += action[POLICY_ACTIONS - 1];
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  printf("%.9f %g\\n", (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec),
         (double)sum);
  return 0;
}
"""


def main() -> None:
    args = parser(__doc__.splitlines()[0]).parse_args()
    calls, rounds = (20_000, 5) if args.quick else (200_000, 11)
    for name, widths in WIDTHS.items():
        with tempfile.TemporaryDirectory() as folder:
            measure(name, widths, Path(folder), calls, rounds)


def measure(name: str, widths: tuple[int, ...], folder: Path, calls: int, rounds: int) -> None:
    layers, scale = network(widths)
    examples = torch.randn(4, widths[0], generator=torch.Generator().manual_seed(2))
    path = folder / "policy.h"
    export = write_c_header(path, "policy", layers, scale, examples, {"network": "random weights"})
    difference = verify_c_header(path, "policy", layers, scale)
    program = build(folder)
    # Best of the rounds: load of other processes only makes rounds slower.
    best_s = min(float(subprocess.check_output([program, str(calls)]).split()[0]) for _ in range(rounds))
    about = {"widths": "-".join(map(str, widths)), "flags": "gcc -O2"}
    emit(f"c/{name}/us_per_call", 1e6 * best_s / calls, "us", aim=AIM_US, calls=calls, rounds=rounds, **about)
    emit(f"c/{name}/max_abs_diff", difference, "action in -1 ... 1", observations=1000, **about)
    emit(f"c/{name}/flash_bytes", export.flash_bytes, "bytes", stack_bytes=export.stack_bytes, **about)
    emit(f"c/{name}/macs", export.macs, "multiply-adds", **about)


def network(widths: tuple[int, ...]) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    rng = torch.Generator().manual_seed(1)
    layers = [
        (torch.randn(b, a, generator=rng) / a**0.5, 0.1 * torch.randn(b, generator=rng))
        for a, b in pairwise(widths)
    ]
    return layers, torch.ones(widths[0])


def build(folder: Path) -> str:
    source, program = folder / "main.c", folder / "main"
    source.write_text(MAIN)
    subprocess.run(["gcc", *FLAGS, str(source), "-lm", "-o", str(program)], check=True)
    return str(program)


if __name__ == "__main__":
    main()
