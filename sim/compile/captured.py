"""A function of tensors on a GPU as a CUDA graph of its single operations.

It needs no compiler and is ready after three calls. Torch's ahead-of-time inductor, which fuses the
operations, compiles for a minute, and its packages crashed on an H100 (torch 2.11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from robo_rl.nets.optim.graphs import GraphCache, update_graphs


def captured(
    graph: torch.fx.GraphModule, examples: Sequence[Tensor], graphs: GraphCache | None = None
) -> Callable[[list[Tensor]], list[Tensor]]:
    """`graph` as one launch per call, for inputs of the shapes of `examples`. Results are copies.

    graphs: where the work is captured; None: a CUDA graph on the device of `examples`.
    """
    device = examples[0].device
    on_device(graph, device)
    cache = graphs or update_graphs(device, "auto", ())
    inputs = [each.clone() for each in examples]

    @torch.no_grad()
    def run(given: list[Tensor]) -> list[Tensor]:
        torch._foreach_copy_(inputs, given)
        return [each.clone() for each in cache.run("kernel", lambda: graph(*inputs))]

    return run


def on_device(graph: torch.fx.GraphModule, device: torch.device) -> None:
    """Move the constants of `graph` to the device, and make its new tensors there: a graph cannot copy from
    ordinary memory of the host.
    """
    for name, value in [*vars(graph).items(), *graph.named_buffers()]:
        if isinstance(value, Tensor):
            setattr(graph, name, value.to(device))
    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": device}
    graph.recompile()
