"""Kernels as CUDA graphs, without a GPU: what the graph would record gives what the function gives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from robo_rl.nets.optim.graphs import GraphCache
from sim.compile.captured import captured, on_device


def turned(x: Tensor, flag: Tensor) -> tuple[Tensor, ...]:
    """With a constant, a new tensor, and a mask."""
    weights = torch.tensor([1.0, 2.0, 3.0])
    return torch.where(flag, x * weights, torch.zeros(3)), x.sum(-1)


def test_results_are_those_of_the_function_and_are_kept() -> None:
    """The second call writes into the same inputs, and leaves the first results."""
    first, second, flag = torch.rand(4, 3), torch.rand(4, 3), torch.tensor([True, False, True])
    run = captured(make_fx(turned)(first, flag), (first, flag), GraphCache())
    one, other = run([first, flag]), run([second, ~flag])
    for found, expected in ((one, turned(first, flag)), (other, turned(second, ~flag))):
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)


def test_constants_move_to_the_device() -> None:
    """On the device `meta` an operation with a tensor of the CPU fails."""
    x, flag = torch.rand(4, 3), torch.tensor([True, False, True])
    graph = make_fx(turned)(x, flag)
    on_device(graph, torch.device("meta"))
    assert [each.device.type for each in graph(x.to("meta"), flag.to("meta"))] == ["meta", "meta"]
