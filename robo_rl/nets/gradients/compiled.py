"""The passes of `Stack` in machine code: one call for all layers of all networks (stack.cpp).

Small networks spend most of a pass between torch's operations. The matrix products take one thread; those in
bfloat16 need a processor with AMX, such as Intel's Xeons from the fourth generation on.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.files.machine_code import UNITS, build_library, cpp_compiler, library_path
from robo_rl.core.shapes import Float
from robo_rl.nets.gradients.activations import ACTIVATIONS
from robo_rl.nets.gradients.layer import Affine, Layer, Scratch

FLAGS = ("-O3", "-fassociative-math", "-fno-signed-zeros")
TILE_FLAGS = ("-mamx-tile", "-mamx-bf16")
PANEL = 64  # float32: columns of the right matrix that a product packs at a time
SIDE, DEPTH, TILE = 16, 32, 256  # bfloat16: rows or columns and depth of a tile, and its size in float32
BLOCK = 256  # rows of `evaluate` whose intermediate results fit into a cache


_SIZES = ("inputs", "outputs", "norm", "relu", "weight_head", "weight_row", "weight_column", "bias_head")
_PARAMETERS = ("weight", "bias", "gain", "shift", "d_weight", "d_bias", "d_gain", "d_shift")


class _Layer(ctypes.Structure):  # as in stack.cpp, and so is _Network
    _fields_ = (
        *((name, ctypes.c_long) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in (*_PARAMETERS, "y", "scale", "h")),
    )


class _Network(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_long) for name in ("heads", "rows", "layers")),
        ("layer", ctypes.POINTER(_Layer)),
        *((name, ctypes.c_void_p) for name in ("x", "packed", "first", "second")),
    )


class _Passes:
    """Memory of both passes for batches of one size."""

    def __init__(self, layers: Sequence[Layer], rows: int, scratch: Scratch) -> None:
        heads, inputs, _ = (like := layers[0].weight).shape
        width = max(size for layer in layers for size in layer.weight.shape[1:])
        self.x = scratch.take("x", like, rows, inputs)
        packed = _tiles(rows, width) * TILE if scratch.bfloat16 else max(rows, width) * PANEL
        parts = [
            scratch.take("packed", like, packed),
            scratch.take("first", like, rows, width),
            scratch.take("second", like, rows, width),
        ]
        made = [_described(layer, number, rows, scratch) for number, layer in enumerate(layers)]
        self.outputs = made[-1][1]
        self._table = (_Layer * len(layers))(*(entry for entry, _ in made))
        self._network = _Network(
            heads, rows, len(layers), self._table, self.x.data_ptr(), *(part.data_ptr() for part in parts)
        )
        self.at = ctypes.addressof(self._network)

    def set_rows(self, rows: int) -> None:
        """Compute these rows of the memory only, which then lie together."""
        self._network.rows = rows


class CompiledStack:
    """`Stack` in machine code. layers: those that `machine_code` accepts."""

    def __init__(self, layers: Sequence[Layer], scratch: Scratch, library: ctypes.CDLL) -> None:
        self.layers, self._scratch = layers, scratch
        self._inputs, self._outputs = layers[0].weight.shape[1], layers[-1].weight.shape[::2]
        self._join, self._forward, self._backward = library.join, library.forward, library.backward
        self._by_rows: dict[int, _Passes] = {}

    def forward(self, *parts: Float[Tensor, "b _"]) -> Float[Tensor, "k b o"]:
        """Outputs for the concatenated parts."""
        self._passes = self._of(parts[0].shape[0])
        self._run(self._passes, parts)
        return self._passes.outputs

    def evaluate(self, *parts: Float[Tensor, "b _"]) -> Float[Tensor, "k b o"]:
        """Outputs for the concatenated parts, in new memory. There is no `backward` of it."""
        rows, (heads, outputs) = len(parts[0]), self._outputs
        found, passes = parts[0].new_empty(heads, rows, outputs), self._of(BLOCK)
        for first in range(0, rows, BLOCK):
            block = slice(first, min(first + BLOCK, rows))
            passes.set_rows(many := block.stop - first)
            self._run(passes, [part[block] for part in parts])
            found[:, block] = passes.outputs.view(-1)[: heads * many * outputs].view(heads, many, outputs)
        passes.set_rows(BLOCK)
        return found

    def _of(self, rows: int) -> _Passes:
        if (passes := self._by_rows.get(rows)) is None:
            passes = self._by_rows[rows] = _Passes(self.layers, rows, self._scratch)
        return passes

    def _run(self, passes: _Passes, parts: Sequence[Float[Tensor, "b _"]]) -> None:
        rows, first = parts[0].shape[0], 0
        for part in parts:
            if part.stride(1) != 1 or part.dtype != torch.float32:
                part = part.float().contiguous()
            height, width = part.shape  # len() of a tensor takes several times as long
            assert height == rows
            assert first + width <= self._inputs
            self._join(passes.at, first, part.data_ptr(), width, part.stride(0))
            first += width
        assert first == self._inputs
        self._forward(passes.at)

    def backward(self, grad: Float[Tensor, "k b o"]) -> None:
        """Write the parameters' gradients, for the last `forward`. grad: in the outputs; overwritten."""
        self._run_backward(grad, True, None, 0)

    def input_gradient(self, grad: Float[Tensor, "k b o"], first: int) -> Float[Tensor, "b c"]:
        """Gradient in the inputs from column `first` on, for the last `forward`. grad: as in `backward`."""
        out = grad.new_empty(grad.shape[1], self._inputs - first)
        self._run_backward(grad, False, out.data_ptr(), first)
        return out

    def _run_backward(self, grad: Tensor, learn: bool, to: int | None, first: int) -> None:
        grad = grad.contiguous()
        self._backward(self._passes.at, grad.data_ptr(), learn, to, first)


def _tiles(rows: int, width: int) -> int:
    """Largest number of tiles of both factors of a product, of a pass or of a weight's gradient."""
    high, wide = -(-rows // SIDE), -(-width // SIDE)
    return max((high + wide) * -(-width // DEPTH), 2 * wide * -(-rows // DEPTH))


def machine_code(layers: Sequence[Layer], bfloat16: bool) -> ctypes.CDLL | None:
    """The library for these layers; None where they are not supported, or where there is none.

    It takes one thread: where torch may use more, its own products are faster, and so they are on processors
    without wide vector instructions.
    """
    known = all(layer.activation in (None, ACTIVATIONS["relu"]) for layer in layers)
    wide = torch.backends.cpu.get_cpu_capability() in UNITS
    if bfloat16 and not has_tiles():
        _warn_of_no_tiles()
        wide = False
    return _library(bfloat16) if known and wide and torch.get_num_threads() == 1 else None


def has_tiles() -> bool:
    """Whether the processor multiplies tiles of bfloat16."""
    return torch.cpu._is_amx_tile_supported()


@cache
def _warn_of_no_tiles() -> None:
    warnings.warn(
        "This processor has no AMX: updates in bfloat16 run in torch, which may be slower than float32 in "
        "machine code. To use that, leave out method.learner.precision=bfloat16.",
        stacklevel=2,
    )


@cache
def _library(bfloat16: bool) -> ctypes.CDLL | None:
    """The library, built at the first call; None with a warning where that fails."""
    product = "product_bfloat16.cpp" if bfloat16 else "product_float32.cpp"
    folder, flags = files("robo_rl.nets.gradients"), (*FLAGS, *(TILE_FLAGS if bfloat16 else ()))
    source = "".join(folder.joinpath(name).read_text() for name in (product, "stack.cpp"))
    try:
        path = library_path(source, flags)
        if not os.path.exists(path):  # false also where it may not be read
            if cpp_compiler() is None:
                raise EnvError("No C++ compiler was found. Install one, for example: sudo apt install g++")
            build_library(source, path, flags, "the learner's passes")
    except EnvError as error:
        advice = " Products in bfloat16 need g++ 11 or later; float32 does not." if bfloat16 else ""
        warnings.warn(f"Updates run in torch and take about twice the time. {error}{advice}", stacklevel=2)
        return None
    library = ctypes.CDLL(str(path))
    number, address = ctypes.c_long, ctypes.c_void_p
    library.join.argtypes = (address, number, address, number, number)
    library.forward.argtypes = (address,)
    library.backward.argtypes = (address, address, ctypes.c_bool, address, number)
    for call in (library.join, library.forward, library.backward):
        call.restype = None
    if bfloat16:
        library.allow.restype = ctypes.c_bool
        if not library.allow():
            warnings.warn("The system does not allow AMX: updates in bfloat16 run in torch.", stacklevel=2)
            return None
    return library


def _described(layer: Layer, number: int, rows: int, scratch: Scratch) -> tuple[_Layer, Tensor]:
    """(entry of a layer, its outputs). number: of the layer in its network."""
    heads, inputs, outputs = (weight := layer.weight).shape
    h = scratch.take(("h", number), weight, heads, rows, outputs)
    y = scratch.take(("y", number), weight, heads, rows, outputs) if layer.norm else h
    scale = scratch.take(("scale", number), weight, heads, rows)
    here = [layer.weight, layer.bias, *_affine(layer.affine)]
    grads = (
        [None] * 4
        if layer.grads is None
        else [layer.grads.weight, layer.grads.bias, *_affine(layer.grads.affine)]
    )
    relu = layer.activation is not None
    places = [None if part is None else part.data_ptr() for part in (*here, *grads, y, scale, h)]
    entry = _Layer(inputs, outputs, layer.norm, relu, *weight.stride(), layer.bias.stride(0), *places)
    return entry, h


def _affine(affine: Affine | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if affine is None else (affine.gain, affine.shift)
