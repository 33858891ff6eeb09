"""Work that is captured once as a CUDA graph and then replayed: the host starts one graph, not 300 kernels.

Work that can be captured reads nothing from the device, changes tensors only in place, and has shapes that do
not depend on data. It does not count on the host either: Python runs at the capture, not at a replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from robo_rl.core.errors import RoboRLError

T = TypeVar("T")
WARM_UP = 3  # runs before the capture, in which libraries allocate what they keep
MOST_GRAPHS = 16  # each keeps its own intermediate results in memory


@runtime_checkable
class Graph(Protocol):
    """A recording of work on a device."""

    def capture(self, work: Callable[[], T]) -> T:
        """Record `work` without running it. Returns its result, which every replay overwrites."""
        ...

    def replay(self) -> None: ...


class CudaGraph:
    """A CUDA graph. generators: those that the work draws from; each replay draws new numbers.

    instead: what a user can do if the capture fails.
    """

    def __init__(
        self,
        generators: Sequence[torch.Generator] = (),
        instead: str = "Set graphs=off, which runs them operation by operation.",
    ) -> None:
        self._instead = instead
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)

    def capture(self, work: Callable[[], T]) -> T:
        try:
            with torch.cuda.graph(self._graph):
                return work()
        except RuntimeError as error:
            raise RoboRLError(
                f"The updates could not be captured as a CUDA graph: {error}. {self._instead}"
            ) from error

    def replay(self) -> None:
        self._graph.replay()


class GraphCache:
    """Graphs of work by key. make: a new graph; None: all work runs operation by operation.

    Work of equal keys must be equal. It runs `WARM_UP` times, is then captured, and from then on replayed.
    All of these runs count: a replay does what a run would do.
    """

    def __init__(self, make: Callable[[], Graph] | None = None) -> None:
        self._make = make
        self._runs: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, tuple[Graph, Any]] = {}

    @property
    def off(self) -> bool:
        """True if all work runs operation by operation."""
        return self._make is None

    def run(self, key: Hashable, work: Callable[[], T]) -> T:
        """Result of the work. Tensors in it may be overwritten by the next run of this key."""
        if self._make is None or (key not in self._graphs and not self._due(key)):
            return work()
        if key not in self._graphs:
            graph = self._make()
            self._graphs[key] = graph, graph.capture(work)
        graph, result = self._graphs[key]
        graph.replay()
        found: T = result
        return found

    def _due(self, key: Hashable) -> bool:
        """True if work that was not captured yet is to be captured now."""
        self._runs[key] += 1
        return self._runs[key] > WARM_UP and len(self._graphs) < MOST_GRAPHS


def update_graphs(device: torch.device, setting: str, generators: Sequence[torch.Generator]) -> GraphCache:
    """Graphs for a run with `graphs=auto|off`: CUDA graphs on a GPU."""
    on = setting == "auto" and device.type == "cuda"
    return GraphCache((lambda: CudaGraph(generators)) if on else None)
