"""Operations of torch on arrays of expressions, for sim/compile/column_trace.py.

Each is called with the context of its place in the graph, then with torch's arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from sim.compile.column_call import Call, is_array
from sim.compile.column_program import UnsupportedGraphError

aten = torch.ops.aten


def _scaled(op: str) -> Callable[..., Any]:
    """x + alpha y, or x - alpha y."""

    def run(call: Call, x: Any, y: Any, alpha: float = 1) -> Any:
        return call.apply(op, x, y if alpha == 1 else call.apply("mul", y, float(alpha)))

    return run


def _number(op: str) -> Callable[..., Any]:
    def run(call: Call, *args: Any) -> Any:
        return call.apply(op, *(x if is_array(x) else float(x) for x in args))

    return run


def _rsub(call: Call, x: Any, y: Any, alpha: float = 1) -> Any:
    return _scaled("sub")(call, y if is_array(y) else float(y), x, alpha)


def _pow(call: Call, x: Any, exponent: float) -> Any:
    """Powers that need no logarithm."""
    if exponent == 0:
        return call.fill(1.0)
    root = {0.5: "sqrt", -0.5: "rsqrt"}.get(exponent)
    if root is not None:
        return call.apply(root, x)
    if exponent != int(exponent) or not -4 <= exponent <= 8:
        raise UnsupportedGraphError(f"a power of {exponent}")
    power = x
    for _ in range(abs(int(exponent)) - 1):
        power = call.apply("mul", power, x)
    return power if exponent > 0 else call.apply("div", 1.0, power)


def _clamp(call: Call, x: Any, low: Any = None, high: Any = None, **named: Any) -> Any:
    low, high = named.get("min", low), named.get("max", high)
    x = x if low is None else call.apply("max", x, low if is_array(low) else float(low))
    return x if high is None else call.apply("min", x, high if is_array(high) else float(high))


def _remainder(call: Call, x: Any, divisor: float) -> Any:
    if divisor <= 0.0:
        raise UnsupportedGraphError(f"a remainder of {divisor}")
    return call.apply("remainder", x, float(divisor))


def _cast(call: Call, x: Any, **_: Any) -> Any:
    wanted = call.node.meta["val"].dtype
    mask = call.node.args[0].meta["val"].dtype == torch.bool  # type: ignore[union-attr]
    if wanted == torch.bool:
        return x if mask else call.apply("differs", x, 0.0)
    return call.apply("where", x, 1.0, 0.0) if mask else x


def _same(call: Call, x: Any, **_: Any) -> Any:
    return x


def _filled(value: float | None = None) -> Callable[..., Any]:
    def run(call: Call, given: Any, number: float = 0.0, **_: Any) -> Any:
        return call.fill(number if value is None else value)

    return run


def _slice(call: Call, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    shape = call.node.args[0].meta["val"].shape  # type: ignore[union-attr]
    if (start or 0) == 0 and step == 1 and (end is None or end >= shape[dim]):
        return x
    chosen = [slice(None)] * x.ndim
    chosen[call.axis(dim)] = slice(start, end, step)
    return x[tuple(chosen)]


def _select(call: Call, x: Any, dim: int, index: int) -> Any:
    return np.asarray(np.take(x, index, call.axis(dim)), dtype=object)


def _put_back(call: Call, grad: Any, sizes: Sequence[int], dim: int, chosen: Any) -> Any:
    """Zeros with `grad` in the chosen places of an axis that is not the columns'."""
    full = call.fill(0.0)
    axis = dim % full.ndim
    if axis == full.ndim - 1 and sizes[-1] == call.columns and full.shape != grad.shape:
        raise UnsupportedGraphError(f"{call.node.target} along the columns")
    places = [slice(None)] * full.ndim
    places[axis] = chosen
    full[tuple(places)] = grad
    return full


def _slice_backward(call: Call, grad: Any, sizes: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    return grad if grad.shape == call.result else _put_back(call, grad, sizes, dim, slice(start, end, step))


def _select_backward(call: Call, grad: Any, sizes: Any, dim: int, index: int) -> Any:
    return _put_back(call, grad, sizes, dim, index)


def _unbind(call: Call, x: Any, dim: int = 0) -> Any:
    axis = call.axis(dim)
    return [np.asarray(np.take(x, i, axis), dtype=object) for i in range(x.shape[axis])]


def _split(call: Call, x: Any, sizes: Sequence[int], dim: int = 0) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], call.axis(dim))


def _cat(call: Call, parts: Any, dim: int = 0) -> Any:
    return np.concatenate(parts, call.axis(dim))


def _stack(call: Call, parts: Any, dim: int = 0) -> Any:
    return np.stack(parts, call.axis(dim, parts[0].ndim + 1))


def _unsqueeze(call: Call, x: Any, dim: int) -> Any:
    return np.expand_dims(x, call.axis(dim, x.ndim + 1))


def _squeeze(call: Call, x: Any, dim: int) -> Any:
    return np.squeeze(x, call.axis(dim)) if x.shape[dim] == 1 else x


def _expand(call: Call, x: Any, *_: Any, **__: Any) -> Any:
    return np.broadcast_to(x, call.result)


def _view(call: Call, x: Any, *_: Any) -> Any:
    return x.reshape(call.result)


def _along(op: str) -> Callable[..., Any]:
    def run(call: Call, x: Any, dims: Any, keepdim: bool = False, **_: Any) -> Any:
        return call.reduce(op, x, dims, keepdim)

    return run


def _mean(call: Call, x: Any, dims: Any, keepdim: bool = False, **_: Any) -> Any:
    count = int(np.prod([x.shape[call.axis(d)] for d in dims]))
    return call.apply("div", call.reduce("add", x, dims, keepdim), float(count))


def _threshold_backward(call: Call, grad: Any, x: Any, threshold: float) -> Any:
    return call.apply("where", call.apply("at_most", x, float(threshold)), 0.0, grad)


def _topk(call: Call, x: Any, count: int, dim: int = -1, largest: bool = True, _sorted: bool = True) -> Any:
    """(values, places) of the first `count` in order along the first axis; equal ones by their place."""
    if call.axis(dim) != 0:
        raise UnsupportedGraphError("topk along another axis than the first")
    order = "greater" if largest else "less"
    ranks = [call.numbers(0.0) for _ in x]
    for i in range(len(x)):
        for j in range(i):
            before = call.apply("or", call.apply(order, x[j], x[i]), call.apply("equal", x[j], x[i]))
            step = call.apply("where", before, 1.0, 0.0)
            ranks[i] = call.apply("add", ranks[i], step)
            ranks[j] = call.apply("add", ranks[j], call.apply("sub", 1.0, step))
    whole = [call.numbers(float(i)) for i in range(len(x))]
    pick = [[call.apply("equal", rank, float(p)) for rank in ranks] for p in range(count)]
    return [np.stack([_chosen(call, mask, values) for mask in pick]) for values in (list(x), whole)]


def _gather(call: Call, x: Any, dim: int, index: Any, **_: Any) -> Any:
    if call.axis(dim) != 0:
        raise UnsupportedGraphError("gather along another axis than the first")
    return np.stack(
        [_chosen(call, [call.apply("equal", i, float(k)) for k in range(len(x))], list(x)) for i in index]
    )


def _chosen(call: Call, masks: list[Any], values: list[Any]) -> Any:
    """The value whose mask is true, of which there is one."""
    found = values[0]
    for mask, value in zip(masks[1:], values[1:], strict=True):
        found = call.apply("where", mask, value, found)
    return found


def _sum(call: Call, x: Any, dims: Any, keepdim: bool = False, **_: Any) -> Any:
    if call.node.args[0].meta["val"].dtype == torch.bool:  # type: ignore[union-attr]
        x = call.apply("where", x, 1.0, 0.0)
    return call.reduce("add", x, dims, keepdim)


def _repeat(call: Call, x: Any, times: Sequence[int]) -> Any:
    if times[-1] != 1:
        raise UnsupportedGraphError("repeat along the columns")
    return np.tile(x, times)


def _tanh_backward(call: Call, grad: Any, out: Any) -> Any:
    return call.apply("mul", grad, call.apply("sub", 1.0, call.apply("mul", out, out)))


def _masked_fill(call: Call, x: Any, mask: Any, value: float) -> Any:
    return np.broadcast_to(call.apply("where", mask, float(value), x), call.result)


def _constant(call: Call, value: float, **_: Any) -> Any:
    return call.fill(value)


OPS: dict[Any, Callable[..., Any]] = {
    operator.getitem: lambda call, x, i: x[i],
    aten.add.Tensor: _scaled("add"),
    aten.add.Scalar: _scaled("add"),
    aten.sub.Tensor: _scaled("sub"),
    aten.sub.Scalar: _scaled("sub"),
    aten.rsub.Scalar: _rsub,
    aten.pow.Tensor_Scalar: _pow,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp,
    aten.clamp_min.default: lambda call, x, low: _clamp(call, x, low),
    aten.clamp_max.default: lambda call, x, high: _clamp(call, x, None, high),
    aten.remainder.Scalar: _remainder,
    aten.relu.default: lambda call, x: call.apply("max", x, 0.0),
    aten.where.self: _number("where"),
    aten.masked_fill_.Scalar: _masked_fill,
    aten.masked_fill.Scalar: _masked_fill,
    aten.threshold_backward.default: _threshold_backward,
    aten.tanh_backward.default: _tanh_backward,
    aten._to_copy.default: _cast,
    aten.lift_fresh_copy.default: _same,
    aten.clone.default: _same,
    aten.detach.default: _same,
    aten.alias.default: _same,
    aten.zeros_like.default: _filled(0.0),
    aten.ones_like.default: _filled(1.0),
    aten.full_like.default: _filled(),
    aten.zeros.default: _filled(0.0),
    aten.ones.default: _filled(1.0),
    aten.full.default: _filled(),
    aten.new_zeros.default: _filled(0.0),
    aten.new_full.default: lambda call, like, size, value, **_: call.fill(value),
    aten.scalar_tensor.default: _constant,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.slice_backward.default: _slice_backward,
    aten.select_backward.default: _select_backward,
    aten.unbind.int: _unbind,
    aten.split_with_sizes.default: _split,
    aten.cat.default: _cat,
    aten.stack.default: _stack,
    aten.unsqueeze.default: _unsqueeze,
    aten.squeeze.dim: _squeeze,
    aten.expand.default: _expand,
    aten.view.default: _view,
    aten.sum.dim_IntList: _sum,
    aten.topk.default: _topk,
    aten.gather.default: _gather,
    aten.repeat.default: _repeat,
    aten.arange.default: lambda call, end, **_: call.numbers(np.arange(end, dtype=float)),
    aten.amax.default: _along("max"),
    aten.amin.default: _along("min"),
    aten.any.dim: _along("or"),
    aten.all.dim: _along("and"),
    aten.mean.dim: _mean,
}
for _name, _op in {
    "mul": "mul", "div": "div", "gt": "greater", "lt": "less", "ge": "at_least", "le": "at_most",
    "eq": "equal", "ne": "differs", "bitwise_and": "and", "bitwise_or": "or",
}.items():  # fmt: skip
    for _kind in {"Tensor", "Scalar"} & set(getattr(aten, _name).overloads()):
        OPS[getattr(getattr(aten, _name), _kind)] = _number(_op)
for _name, _op in {
    "neg": "neg", "abs": "abs", "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "exp": "exp",
    "exp2": "exp2",
    "floor": "floor", "sgn": "sign", "sign": "sign", "tanh": "tanh", "maximum": "max", "minimum": "min",
    "reciprocal": "reciprocal", "logical_and": "and", "logical_and_": "and", "logical_or": "or",
    "bitwise_not": "not", "logical_not": "not",
}.items():  # fmt: skip
    OPS[getattr(aten, _name).default] = _number(_op)

IN_PLACE = {aten.masked_fill_.Scalar, aten.logical_and_.default}
VIEWS = {
    aten.slice.Tensor, aten.select.int, aten.unbind.int, aten.unsqueeze.default, aten.squeeze.dim,
    operator.getitem, aten.expand.default, aten.view.default, aten.detach.default, aten.alias.default,
    aten.split_with_sizes.default,
}  # fmt: skip
# Operations that may have whole numbers as results, exact in float32 as far as a kernel counts.
WHOLE = VIEWS | {aten.arange.default, aten.topk.default, aten.sum.dim_IntList}
