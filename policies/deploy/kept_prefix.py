"""The prefix of a vision-language-action policy under ONNX Runtime, encoded when what it reads changes."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from policies.deploy.graph import Device, OnnxGraph
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.text.durations import Durations


class KeptPrefix:
    """Outputs of the prefix graph for the newest pictures and words; the graph runs only when they change.

    What it returns is a function of the observation alone.
    """

    def __init__(self, path: Path, device: Device = "auto", threads: int = 1) -> None:
        self.graph = OnnxGraph(path, path.name, device, threads)
        self.took = Durations()  # seconds of the runs of the graph
        self._seen: Obs = {}
        self._made: Obs = {}

    def __call__(self, obs: Obs) -> Obs:
        if missing := sorted(self.graph.shapes.keys() - obs.keys()):
            raise ConfigError(f"{self.graph.name} needs {', '.join(missing)}, found only {sorted(obs)}.")
        seen = {key: obs[key] for key in self.graph.shapes}
        if not self._same(seen):
            start_s = time.perf_counter()
            self._made = self.graph.run_all(seen)
            self.took.add(time.perf_counter() - start_s)
            self._seen = {key: value.clone() for key, value in seen.items()}
        return self._made

    def _same(self, seen: Obs) -> bool:
        return bool(self._seen) and all(torch.equal(value, self._seen[key]) for key, value in seen.items())


def times_text(what: str, took: Durations) -> str:
    """Number and times of calls: "prefix: 25 runs, 8.1 ms (p99 9.7 ms)"."""
    if not took.count:
        return f"{what}: no runs"
    p50, p99 = (1e3 * took.percentile_s(share) for share in (50, 99))
    return f"{what}: {took.count} runs, {p50:.3g} ms (p99 {p99:.3g} ms)"
