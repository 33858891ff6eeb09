"""Kernels of separate columns equal their functions at any number of columns; mixed ones are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sim.compile import kernels
from sim.compile.column_program import Program, UnsupportedGraphError
from sim.compile.column_trace import column_count
from sim.compile.kernels import compile_kernel, differentiable

Fn = Callable[..., tuple[Tensor, ...]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no inductor: what columns do not support fails here."""
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "_compile_graph", no_inductor)
    return tmp_path


def no_inductor(*_: object) -> None:
    raise AssertionError("left to inductor")


EIGHT = torch.linspace(0.0, 1.0, 8)


def numbers(rows: int, columns: int, size: float = 3.0) -> Tensor:
    """Random numbers, with zeros, equal ones and negative zeros among them."""
    x = size * torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    x[:, ::7], x[:, 1::7] = 0.0, -0.0
    return x


def compare(fn: Fn, *inputs: Tensor, rtol: float = 1e-6, atol: float = 1e-6) -> None:
    kernel = compile_kernel(fn, inputs)
    for ours, theirs in zip(kernel(*inputs), fn(*inputs), strict=True):
        assert ours.is_contiguous()
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)


def scalars(x: Tensor) -> tuple[Tensor, ...]:
    """Every function of one number."""
    low = x.abs() + 0.1
    return (
        torch.stack([x.sin(), x.cos(), x.exp(), x.tanh(), torch.exp2(x), torch.exp2(torch.floor(x))]).sum(1),
        torch.cat([low.sqrt(), low.rsqrt(), low.reciprocal(), x.sgn(), x.floor(), x.neg(), x.relu()]),
        torch.cat([x.pow(2), x.pow(3), low.pow(0.5), low.pow(-0.5), low.pow(-2), x.pow(0), x**1]),
        torch.cat([torch.remainder(x, 2.5), x.clamp(-1, 1), x.clamp(min=0.5), 1.0 - x, x / 3.0, 3.0 / low]),
    )


def choices(x: Tensor) -> tuple[Tensor, ...]:
    """Comparisons, logic, choices, and truth values in arithmetic."""
    a, b, c = x.unbind(0)
    mask = (a > b) & ~(b >= c) | (a == c) | (a != 0.0) & (c <= 1.0)
    return (
        torch.where(mask, a, b),
        (a < b).float() + (a < b) * c,
        torch.stack([a, b]).masked_fill(mask, 5.0),
        torch.maximum(a, b) + torch.minimum(b, c),
        (x > 0.0).any(0).float() + (x > 0.0).all(0).float() + (x > 0.0).sum(0).float(),
        a.clamp(torch.minimum(b, c), torch.maximum(b, c)),
    )


def moves(x: Tensor) -> tuple[Tensor, ...]:
    """Rows that are cut, stacked, joined, reduced, sorted and picked."""
    first, rest = x[:2], x[2:]
    values, places = torch.topk(x, 3, 0, largest=False)
    return (
        torch.cat([rest, first, torch.zeros_like(first), x[::2]]),
        torch.stack([first, 2.0 * first], 1).reshape(4, -1),
        x.unsqueeze(0).expand(2, -1, -1).sum(1) + x.mean(0) - x.amax(0) + x.amin(0, keepdim=True),
        values, torch.gather(2.0 * x, 0, places), first.repeat(2, 1),
    )  # fmt: skip


@pytest.mark.parametrize("columns", [1, 5, 16, 33, 64])
@pytest.mark.parametrize("fn", [scalars, choices, moves])
def test_a_kernel_equals_its_function(fn: Fn, columns: int) -> None:
    """Fewer columns than a vector, one more than two vectors, and multiples."""
    compare(fn, numbers(6 if fn is moves else 3, columns), rtol=2e-6, atol=2e-6)


def test_limits_of_functions_are_those_of_torch() -> None:
    """Infinities, not-a-number, and arguments at which an exponential overflows or vanishes."""
    odd = [math.inf, -math.inf, math.nan, 88.0, 89.0, -88.0, -104.5, 200.0, -200.0, 0.6249, 0.6251, 9.1]
    x = torch.tensor([odd])
    compare(lambda x: (x.tanh(), torch.exp2(x), x.relu(), x.clamp(-1, 1), x.abs().sqrt()), x)
    compare(lambda x: (x.exp(),), x, atol=1e-37)
    compare(lambda x: (torch.maximum(x, 1.0 - x), torch.minimum(0.0 * x, x)), x)


def test_sines_are_exact_for_thousands_of_turns() -> None:
    """Phases of a clock grow with time: the reduction to a quarter turn must not lose digits."""
    compare(lambda x: (x.sin(), x.cos()), torch.linspace(-8000.0, 8000.0, 4001).view(1, -1), atol=2e-6)


def test_numbers_shared_by_all_columns_are_read_once() -> None:
    """An input with one column, a constant vector and a plain number meet the columns."""
    scale = torch.tensor([2.0, 3.0, 4.0])

    def fn(x: Tensor, shared: Tensor) -> tuple[Tensor, ...]:
        return (x * shared + scale[:, None], (shared * shared).expand(-1, x.shape[1]))

    compare(fn, numbers(3, 40), torch.tensor([[0.5], [-1.0], [3.0]]))


def test_another_number_of_columns_finds_the_same_file(cache: Path) -> None:
    """Training with 128 drones and a measurement with 1,000 share one kernel."""
    built = [compile_kernel(scalars, (numbers(3, columns),)) for columns in (40, 100)]
    assert [kernel.compile_s > 0.0 for kernel in built] == [True, False]
    assert len(list((cache / "kernels").iterdir())) == 1


def test_results_of_a_column_do_not_depend_on_its_place() -> None:
    """The same drone flies the same flight in any lane, next to any others."""
    x = numbers(3, 37)
    alone = compile_kernel(scalars, (x[:, 20:21].contiguous(),))(x[:, 20:21].contiguous())
    for ours, among in zip(alone, compile_kernel(scalars, (x,))(x), strict=True):
        torch.testing.assert_close(ours, among[:, 20:21], rtol=0.0, atol=0.0)


def test_gradients_are_those_of_autograd() -> None:
    """Backward through cuts, choices, limits and reductions."""

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        a, b, c = x.unbind(0)
        near = torch.where(a > b, a * y, b.clamp(-1.0, 1.0)).tanh()
        return torch.stack([near, c.sin() * y, x.amax(0)]), x[1:].square().sum(0).add(0.1).sqrt()

    given = (numbers(3, 24) + 0.01 * torch.rand(3, 24), torch.linspace(0.0, 3.0, 24))
    run, _ = differentiable(fn, given, (0,))
    grads = []
    for each in (run, fn):
        x = given[0].clone().requires_grad_()
        first, second = each(x, given[1])
        (first.square().sum() + second.sum()).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("fn", "word"),
    [
        (lambda x: (x.sum(1, keepdim=True).expand_as(x),), "columns"),
        (lambda x: (x.flip(1),), "flip"),
        (lambda x: (x.double().float(),), "float64"),
        (lambda x: (x.pow(1.5),), "power"),
        (lambda x: (x.sum(1),), "columns"),
        (lambda x: (x.T.contiguous(),), "permute"),
        (lambda x: (x + EIGHT,), "constant with 8 columns"),
    ],
)
def test_what_mixes_columns_is_left_to_inductor(fn: Fn, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the operation; nothing is compiled as something that it is not."""
    reasons: list[str] = []
    trace = kernels.trace_columns

    def told(*given: object) -> object:
        try:
            return trace(*given)  # type: ignore[arg-type]
        except UnsupportedGraphError as error:
            reasons.append(str(error))
            raise

    monkeypatch.setattr(kernels, "trace_columns", told)
    monkeypatch.setattr(kernels, "_compile_graph", lambda *_: None)
    assert compile_kernel(fn, (numbers(3, 8),)) is None
    assert word in reasons[0]


def test_inputs_must_agree_on_the_number_of_columns() -> None:
    """Rows of several environments, (n, o) and (n, a), are no columns."""
    with pytest.raises(UnsupportedGraphError, match=r"lengths \[3, 7\]"):
        column_count((torch.zeros(4, 3), torch.zeros(4, 7)))
    assert column_count((torch.zeros(4, 3), torch.zeros(7, 1), torch.zeros(3))) == 3


def test_constants_are_folded_and_equal_expressions_are_one() -> None:
    """(x + 0) * 1 is x; x y + x y needs one product; a choice with a known answer is the answer."""
    program = Program()
    x, y, zero, one = (program.load(0, 0, uniform=False), program.load(0, 1, uniform=False),
                       program.const(0.0), program.const(1.0))  # fmt: skip
    assert program.apply("mul", program.apply("add", x, zero), one) == x
    assert program.apply("mul", x, y) == program.apply("mul", x, y)
    assert program.apply("where", program.apply("less", zero, one), x, y) == x
    assert program.value(program.apply("add", one, one)) == 2.0
