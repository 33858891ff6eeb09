"""One layer of k networks of equal size: linear map, LayerNorm and activation, with the backward pass written
out.

    z = x W + b,   y = gain * (z - mean z) / sqrt(var z + eps) + shift,   h = act(y)
    dW = x^T dz,   db = sum over rows of dz,   dx = dz W^T
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.nets.gradients.activations import Activation

EPS = 1e-5  # of torch.nn.LayerNorm
SHORT = 128  # inputs up to which a product with one column is no slower than a sum of products


@dataclass(frozen=True, slots=True)
class Affine:
    """Gain and shift of a norm; of one network, k = 1."""

    gain: Float[Tensor, " o"]
    shift: Float[Tensor, " o"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a layer, as views; or the places of their gradients."""

    weight: Float[Tensor, "k i o"]
    bias: Float[Tensor, "k 1 o"]
    affine: Affine | None = None


class Scratch:
    """Memory of passes, shared by networks that are not in use at the same time: it stays in cache.

    compiled: the networks may run in machine code (see `compiled`). bfloat16: then the inputs of their matrix
    products are rounded to it.
    """

    def __init__(self, compiled: bool, bfloat16: bool = False) -> None:
        self.compiled, self.bfloat16 = compiled, bfloat16
        self._parts: dict[tuple[Hashable, int], Tensor] = {}

    def take(self, name: Hashable, like: Tensor, *shape: int) -> Tensor:
        """Memory of this name, in this shape; the same one for equal sizes."""
        key = (name, math.prod(shape))
        if key not in self._parts:
            self._parts[key] = like.new_empty(key[1])
        return self._parts[key].view(shape)


class LayerPass:
    """What a layer computes for an input `x` that stays in memory. number: of the layer in its network."""

    def __init__(self, layer: Layer, x: Float[Tensor, "k b i"], number: int, scratch: Scratch) -> None:
        rows, like = x.shape[1], layer.weight
        k, inputs, outputs = like.shape

        def take(name: str, *shape: int, at: int = number) -> Tensor:
            return scratch.take((name, at), like, *shape)

        self.x, self.x_back = x, x.mT
        self.z = take("z", k, rows, outputs)
        self.z_rows = self.z.flatten(1)
        self.y = take("y", k, rows, outputs) if layer.norm else self.z
        in_place = layer.activation is None or layer.activation.in_place
        self.h = self.y if in_place else take("h", k, rows, outputs)
        self.mean, self.scale = take("mean", k, rows, 1), take("scale", k, rows, 1)
        self.dx = take("dx", k, rows, inputs, at=number % 2)
        self.dx_back = self.dx.mT


class Layer:
    """A layer of k networks. activation: None for an output layer. grads: where the gradients go; None for
    networks that do not learn here.
    """

    def __init__(
        self, here: Parameters, activation: Activation | None, norm: bool, grads: Parameters | None
    ) -> None:
        self.weight, self.bias, self.affine = here.weight, here.bias, here.affine
        self.activation, self.norm, self.grads = activation, norm, grads
        self._back = self.weight.mT
        self._single = self.weight.shape[2] == 1
        self._dot = self._single and self.weight.shape[1] > SHORT
        # Where memory holds (o, i), as in nn.Linear, the gradient is computed in that layout.
        self._place_back = None
        if grads is not None and (self._single or not grads.weight.is_contiguous()):
            self._place_back = grads.weight.mT

    def forward(self, now: LayerPass) -> None:
        """Compute `now.h`."""
        if self._dot:
            torch.linalg.vecdot(now.x, self._back, out=now.z_rows)
        else:
            torch.bmm(now.x, self.weight, out=now.z)
        now.z.add_(self.bias)  # a pass of its own: baddbmm copies the bias first, which takes longer
        if self.norm:
            _normalise(now, self.affine)
        if self.activation is not None:
            self.activation.forward(now.y, now.h)

    def backward(
        self, now: LayerPass, dh: Float[Tensor, "k b o"], dh_back: Float[Tensor, "k o b"], learn: bool
    ) -> Float[Tensor, "k b o"]:
        """dz from dh, which is overwritten, and its transpose. learn: write the parameters' gradients."""
        dz, dz_back = dh, dh_back
        if self.activation is not None:
            self.activation.backward(dz, now.y, now.h)
        if self.norm:
            dz = self._norm_backward(now, dz, learn)
            dz_back = dz.mT
        if learn:
            assert self.grads is not None
            if self._place_back is None:
                torch.bmm(now.x_back, dz, out=self.grads.weight)
            else:
                torch.bmm(dz_back, now.x, out=self._place_back)
            torch.sum(dz, 1, keepdim=True, out=self.grads.bias)
        return dz

    def to_input(self, now: LayerPass, dz: Float[Tensor, "k b o"]) -> None:
        """Compute `now.dx`."""
        if self._single:
            torch.mul(dz, self._back, out=now.dx)
        else:
            torch.bmm(dz, self._back, out=now.dx)

    def to_columns(self, dz: Float[Tensor, "k b o"], first: int) -> Float[Tensor, "b c"]:
        """Gradient from this column on of an input that the k networks share."""
        return torch.bmm(self.weight[:, first:], dz.mT).sum(0).t()

    def _norm_backward(self, now: LayerPass, dy: Tensor, learn: bool) -> Tensor:
        gain, shift = (None, None) if self.affine is None else (self.affine.gain, self.affine.shift)
        learn = learn and self.affine is not None
        dz: Tensor
        dz, dgain, dshift = torch.ops.aten.native_layer_norm_backward(
            dy, now.z, dy.shape[-1:], now.mean, now.scale, gain, shift, [True, learn, learn]
        )
        if learn:
            assert self.grads is not None
            assert self.grads.affine is not None
            self.grads.affine.gain.copy_(dgain)
            self.grads.affine.shift.copy_(dshift)
        return dz


def _normalise(now: LayerPass, affine: Affine | None) -> None:
    """LayerNorm of `z` into `y`, with mean and 1 / sqrt(var + eps): half the time of torch's on a CPU."""
    z, y, scale = now.z, now.y, now.scale
    torch.mean(z, -1, keepdim=True, out=now.mean)
    torch.sub(z, now.mean, out=y)
    torch.linalg.vector_norm(y, dim=-1, keepdim=True, out=scale)
    scale.square_().mul_(1.0 / z.shape[-1]).add_(EPS).rsqrt_()
    y.mul_(scale)
    if affine is not None:
        torch.addcmul(affine.shift, y, affine.gain, out=y)
