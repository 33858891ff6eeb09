"""What changes the time of an update: the optimiser's form, half precision, compilation."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from common import emit

from robo_rl.nets.mlp import mlp
from robo_rl.nets.optim.flat import FlatAdam

Updates = Callable[[int], None]  # does this many updates
SIZES = ((20, 256), (256, 256), (256, 1))


def emit_costs(label: str, plain: Updates, half: Updates, rounds: int) -> None:
    """learner/<label>/updates_per_cpu_s and .../bfloat16_ratio."""
    each_s = taken_in_turns({"plain": plain, "half": half}, rounds)
    emit(f"learner/{label}/updates_per_cpu_s", round(1.0 / each_s["plain"], 1), "updates/cpu-s")
    emit(f"learner/{label}/bfloat16_ratio", round(each_s["plain"] / each_s["half"], 3), "ratio")


def emit_updates(label: str, update: Updates, rounds: int) -> None:
    """learner/<label>/updates_per_cpu_s."""
    each_s = taken_in_turns({"plain": update}, rounds, times=8)
    emit(f"learner/{label}/updates_per_cpu_s", round(1.0 / each_s["plain"], 2), "updates/cpu-s")


def emit_compiled(label: str, plain: Updates, compiled: Updates, rounds: int) -> None:
    """learner/<label>/compiled_ratio: torch.compile's updates relative to the same ones in eager mode."""
    start_s = time.process_time()
    compiled(4)
    compile_s = time.process_time() - start_s
    each_s = taken_in_turns({"plain": plain, "compiled": compiled}, rounds)
    ratio = round(each_s["plain"] / each_s["compiled"], 3)
    emit(f"learner/{label}/compiled_ratio", ratio, "ratio", compile_cpu_s=round(compile_s, 1))


def emit_adam(rounds: int) -> None:
    """learner/adam/flat_ratio_vs_<foreach|fused>: one vector, relative to torch over each tensor.

    The gradient's concatenation counts as part of the flat step.
    """
    nets = [mlp(SIZES[0][0], (256, 256), 1) for _ in range(3)]
    ours = FlatAdam(nets[0], 1e-3)
    gradients = [torch.randn(p.numel()) for p in nets[0].parameters()]

    def flat(times: int) -> None:
        for _ in range(times):
            torch.cat(gradients, out=ours.flat.grad)
            ours.step()

    steps: dict[str, Updates] = {"flat": flat}
    for kind, net in zip(("foreach", "fused"), nets[1:], strict=True):
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, **{kind: True})
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
        steps[kind] = lambda times, step=optimizer.step: [step() for _ in range(times)] and None  # type: ignore[misc]
    each_s = taken_in_turns(steps, rounds)
    for kind in ("foreach", "fused"):
        ratio = round(each_s[kind] / each_s["flat"], 3)
        emit(f"learner/adam/flat_ratio_vs_{kind}", ratio, "ratio", us=round(1e6 * each_s["flat"], 1))


def taken_in_turns(updates: dict[str, Updates], rounds: int, times: int = 30) -> dict[str, float]:
    """CPU-seconds per update: the best of `rounds` turns, so that a busy machine slows all alike."""
    best = dict.fromkeys(updates, float("inf"))
    for _ in range(rounds + 1):
        for name, update in updates.items():
            start_s = time.process_time()
            update(times)
            best[name] = min(best[name], (time.process_time() - start_s) / times)
    return best
