from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from robo_rl.eval.timing import cpu_seconds, decision_latencies, decision_latency, percentiles_ms
from tests.eval.fakes import NoisyPolicy

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_cpu_seconds_count_a_running_worker() -> None:
    """Simulators run in worker processes: a figure without them would be too low for every method."""
    before = cpu_seconds()
    worker = subprocess.Popen([sys.executable, "-c", BURN + "print('burnt', flush=True)\ninput()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert worker.stdout is not None
        worker.stdout.readline()
        running = cpu_seconds() - before
    finally:
        worker.communicate(b"\n")
    assert running >= 0.25
    assert cpu_seconds() - before >= running - 0.02  # /proc counts in ticks of 10 ms


def test_latency_is_measured_for_one_environment() -> None:
    """A robot decides at batch 1; a batch of 64 would hide the overhead per call."""

    class Slow(NoisyPolicy):
        def sample(self, obs: dict[str, torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
            assert noise.shape == (1, 4, 1)
            assert obs["state"].shape == (1, 2, 2)
            time.sleep(2e-3)
            return super().sample(obs, noise)

    latency = decision_latency(Slow(), {"state": torch.zeros(5, 2, 2)}, n=20, warmup=1)
    assert 2.0 <= latency.p50_ms <= latency.p99_ms
    assert "ms" in str(latency)


def test_policies_are_timed_in_turns() -> None:
    """Changing load slows all of them equally; waiting costs wall time but no CPU time."""
    order: list[str] = []

    class Named(NoisyPolicy):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def sample(self, obs: dict[str, torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
            order.append(self.name)
            time.sleep(5e-3 if self.name == "b" else 0.0)
            return super().sample(obs, noise)

    obs = {"state": torch.zeros(1, 2, 2)}
    fast, slow = decision_latencies([(Named("a"), obs), (Named("b"), obs)], n=5, warmup=1)
    assert "".join(order) == "ab" * 6
    assert fast.p50_ms < 5.0 <= slow.p50_ms
    assert slow.cpu_ms is not None
    assert slow.cpu_ms < slow.p50_ms - 4.0
    assert "CPU" in str(slow)


def test_percentiles_by_hand() -> None:
    """1..101 ms: the median is the 51st, the 99th percentile the 100th."""
    assert percentiles_ms([i * 1e-3 for i in range(1, 102)]) == pytest.approx((51.0, 100.0))
    assert percentiles_ms([]) == (0.0, 0.0)
