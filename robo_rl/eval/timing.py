"""CPU seconds and decision latency."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from robo_rl.core.conditioning import empty_memory
from robo_rl.core.protocols import ChunkPolicy, Obs, VecEnv
from robo_rl.core.seeding import EpisodeSeeds, generator


def cpu_seconds() -> float:
    """CPU time [s] of this process and its worker processes, running or ended and waited for.

    Running workers are read from /proc; without it (macOS) only this process and ended ones count.
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
    except OSError:  # no /proc, or the process has just ended
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
    """Time of one decision at batch 1 [ms]: wall-time p50 and p99, and median CPU time."""

    p50_ms: float
    p99_ms: float
    n: int
    threads: int
    cpu_ms: float | None = None  # None: not measured

    def __str__(self) -> str:
        cpu = "" if self.cpu_ms is None else f", CPU {self.cpu_ms:.3g} ms"
        return f"{self.p50_ms:.3g} ms (p99 {self.p99_ms:.3g} ms{cpu})"


def percentiles_ms(seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile [ms]; (0, 0) without values."""
    if not seconds:
        return 0.0, 0.0
    p50, p99 = np.percentile(np.asarray(seconds) * 1e3, [50, 99])
    return float(p50), float(p99)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def decision_latency(policy: ChunkPolicy, obs: Obs, n: int = 200, warmup: int = 20) -> Latency:
    """Time n decisions of one policy; see `decision_latencies`."""
    return decision_latencies([(policy, obs)], n, warmup)[0]


def decision_latencies(
    policies: Sequence[tuple[ChunkPolicy, Obs]], n: int = 200, warmup: int = 20
) -> list[Latency]:
    """Time n decisions of each policy, in turns, so that load on the machine affects all equally.

    A decision is one chunk and the refinement of its first action. obs: (1, To, *shape), one environment;
    further rows are ignored. Noise is drawn outside the timed part, and pictures change from one decision to
    the next: a policy may keep what it made of the last ones.
    """
    turns = [_Decisions(policy, obs) for policy, obs in policies]
    for i in range(warmup + n):
        for each in turns:
            each.decide(keep=i >= warmup)
    return [each.latency() for each in turns]


def latencies_on(policies: Sequence[ChunkPolicy], env: VecEnv) -> list[Latency]:
    """Decision times of the policies on an observation of `env`, at batch 1, measured in turns."""
    obs = env.reset(EpisodeSeeds("latency"))
    histories = [
        {key: value.unsqueeze(1).repeat_interleave(policy.obs_steps, 1) for key, value in obs.items()}
        | empty_memory(policy, env.num_envs)
        for policy in policies
    ]
    return decision_latencies(list(zip(policies, histories, strict=True)))


class _Decisions:
    """Timed decisions of one policy."""

    def __init__(self, policy: ChunkPolicy, obs: Obs) -> None:
        self._policy, self._obs = policy, {key: value[:1].clone() for key, value in obs.items()}
        self._pictures = [value for key, value in self._obs.items() if key.startswith("image.")]
        self._device = next(iter(obs.values())).device
        self._shape, self._rng = (1, policy.chunk, policy.action_spec.dim), generator("decision_latency")
        self._wall_s: list[float] = []
        self._cpu_s: list[float] = []

    @torch.no_grad()
    def decide(self, keep: bool) -> None:
        noise = torch.randn(self._shape, generator=self._rng).to(self._device)
        for picture in self._pictures:
            picture += 1  # modulo 256
        _synchronize(self._device)
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        self._policy.refine(self._obs, self._policy.sample(self._obs, noise)[:, 0])
        _synchronize(self._device)
        if keep:
            self._cpu_s.append(time.process_time() - start_cpu_s)
            self._wall_s.append(time.perf_counter() - start_s)

    def latency(self) -> Latency:
        wall_ms, (cpu_ms, _) = percentiles_ms(self._wall_s), percentiles_ms(self._cpu_s)
        return Latency(*wall_ms, n=len(self._wall_s), threads=torch.get_num_threads(), cpu_ms=cpu_ms)
