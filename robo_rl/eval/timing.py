"""CPU seconds and decision latency."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.seeding import generator


def cpu_seconds() -> float:
    """CPU time of this process and of its worker processes, running or ended and collected, in seconds.

    Running workers are read from /proc; where there is none (macOS) only this process and ended ones count.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        time.process_time()
        + ended.ru_utime
        + ended.ru_stime
        + sum(map(_tree_seconds, _children(os.getpid())))
    )


def _children(pid: int) -> list[int]:
    try:
        tasks = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:  # no /proc here, or the process has just ended
        return []


def _tree_seconds(pid: int) -> float:
    """CPU time of a running process, its collected children (fields 14-17 of proc(5) stat) and its running
    ones.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    ticks = sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(_tree_seconds, _children(pid)))


@dataclass(frozen=True, slots=True)
class Latency:
    """Wall time of one decision at batch 1, in milliseconds."""

    p50_ms: float
    p99_ms: float
    n: int
    threads: int

    def __str__(self) -> str:
        return f"{self.p50_ms:.3g} ms (p99 {self.p99_ms:.3g} ms)"


def percentiles_ms(seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds; (0, 0) of nothing."""
    if not seconds:
        return 0.0, 0.0
    p50, p99 = np.percentile(np.asarray(seconds) * 1e3, [50, 99])
    return float(p50), float(p99)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def decision_latency(policy: ChunkPolicy, obs: Obs, n: int = 200, warmup: int = 20) -> Latency:
    """Time n decisions: one chunk and the refinement of its first action.

    obs: (1, To, *shape), one environment; more rows are cut off. The noise is drawn outside the timed part.
    """
    obs = {key: value[:1] for key, value in obs.items()}
    device = next(iter(obs.values())).device
    shape = (1, policy.chunk, policy.action_spec.dim)
    rng = generator("decision_latency")
    seconds: list[float] = []
    for i in range(warmup + n):
        noise = torch.randn(shape, generator=rng).to(device)
        _synchronize(device)
        start_s = time.perf_counter()
        with torch.no_grad():
            policy.refine(obs, policy.sample(obs, noise)[:, 0])
        _synchronize(device)
        if i >= warmup:
            seconds.append(time.perf_counter() - start_s)
    return Latency(*percentiles_ms(seconds), n=n, threads=torch.get_num_threads())
