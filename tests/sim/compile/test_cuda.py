"""CUDA code of column programs equals their functions: run as C++ on the CPU, and on a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from sim.compile import cuda_build, kernels
from sim.compile.column_trace import ColumnProgram
from sim.compile.kernels import Kernel, compile_kernel
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import Spread
from sim.flight.flights import Flights
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses
from tests.sim.compile.cuda_as_cpp import load_as_cpp
from tests.sim.compile.test_columns import choices, moves, numbers, scalars


@pytest.fixture
def cuda_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are the CUDA code, compiled as C++ and launched by a driver on the CPU."""

    def compiled(traced: ColumnProgram, examples: Sequence[Tensor]) -> Kernel:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return Kernel(load_as_cpp(traced, folder, monkeypatch), 0.0, compiled=True)

    monkeypatch.setattr(kernels, "_compile_columns", compiled)


def shared(x: Tensor, row: Tensor) -> tuple[Tensor, ...]:
    """An input with one column meets the columns, and a constant is an output."""
    return x * row + torch.inf, torch.where(x > 0.0, x, row), torch.ones_like(x)


@pytest.mark.usefixtures("cuda_text")
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (scalars, (numbers(3, 5),)),
        (choices, (numbers(3, 300),)),
        (moves, (numbers(6, 5),)),
        (shared, (numbers(3, 9), torch.tensor([[0.5], [-1.0], [3.0]]))),
    ],
)
def test_cuda_code_equals_its_function(
    fn: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...]
) -> None:
    """Every function of one number, every choice, and every move of rows."""
    for ours, theirs in zip(compile_kernel(fn, inputs)(*inputs), fn(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.long
@pytest.mark.usefixtures("cuda_text")
def test_cuda_code_of_a_flight_and_its_gradient_is_that_of_autograd() -> None:
    """The joint step of physics, sensors and cost, forward and backward, with parameters of every drone."""
    grads: list[Tensor] = []
    for eager in (False, True):
        spread = Spread(0.1, 0.1, 0.1, 0.1, 0.1)
        flights = Flights(
            load_craft("cf2x_l2f"), HoverTask(), FlightSenses(), 6, 0, spread=spread, eager=eager
        )
        flights.restart()
        action = torch.linspace(-0.2, 0.4, 24).view(4, 6).requires_grad_()
        cost = flights.step(action)[0].sum() + flights.step(action)[0].sum()
        cost.backward()
        assert action.grad is not None
        grads += [cost.detach(), action.grad]
    torch.testing.assert_close(grads[0], grads[2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grads[1], grads[3], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("cuda_text")
def test_a_launch_that_the_driver_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message holds the driver's words, and what to do."""
    x = numbers(3, 5)
    kernel = compile_kernel(choices, (x,))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=0))
    with pytest.raises(EnvError, match=r"refused a kernel.*\(code 1\).*robo-rl doctor"):
        kernel(x)


def test_a_missing_cuda_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch without its CUDA packages: the message says what to reinstall."""

    def missing(name: str) -> ctypes.CDLL:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(EnvError, match=r"libnvrtc.*reinstall torch, or set eager=true"):
        cuda_build.nvrtc_library.__wrapped__()


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [1, 33, 100_000])
def test_a_kernel_on_the_gpu_equals_its_function(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU: built once, found on disk, and the same in a CUDA graph."""
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path))
    x = numbers(3, columns).cuda()
    first, kernel = (compile_kernel(choices, (x,)) for _ in range(2))
    assert first.compile_s > 0.0
    assert kernel.compile_s == 0.0
    expected = [y.cpu() for y in choices(x)]
    for ours, theirs in zip(kernel(x), expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=1e-6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = kernel(x)
    graph.replay()
    torch.cuda.synchronize()
    for ours, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
def test_functions_on_the_gpu_are_those_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU: sines, exponentials and roots of the device, to a few units of the last place."""
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path))
    x = numbers(3, 1000).cuda()
    for ours, theirs in zip(compile_kernel(scalars, (x,))(x), scalars(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
