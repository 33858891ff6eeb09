"""Both passes of a network of linear layers, written out, for updates of small networks.

autograd records and walks some thirty nodes per loss, and allocates every intermediate result. Here both
passes are plain operations on tensors that stay where they are in memory, and the gradient is written into
the optimiser's vector. Nothing reads the device, so a CUDA graph can hold both. The tests compare the
gradients with autograd's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.gradients.activations import ACTIVATIONS, Activation
from robo_rl.nets.gradients.compiled import CompiledStack, machine_code
from robo_rl.nets.gradients.layer import EPS, Affine, Layer, LayerPass, Parameters, Scratch
from robo_rl.nets.optim.flat import FlatAdam

_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: ACTIVATIONS["relu"],
    nn.Tanh: ACTIVATIONS["tanh"],
    nn.SiLU: ACTIVATIONS["silu"],
}


class Stack:
    """Layers of k networks that share their input. Results are valid until the next pass in their scratch."""

    def __init__(self, layers: Sequence[Layer], scratch: Scratch) -> None:
        self.layers, self._scratch = layers, scratch
        self._by_rows: dict[int, tuple[Tensor, list[LayerPass]]] = {}
        self._passes: list[LayerPass] = []

    def forward(self, *parts: Float[Tensor, "b _"]) -> Float[Tensor, "k b o"]:
        """Outputs for the concatenated parts."""
        if (found := self._by_rows.get(len(parts[0]))) is None:
            found = self._by_rows[len(parts[0])] = self._new(len(parts[0]))
        x, self._passes = found
        torch.cat(parts, dim=-1, out=x)
        for layer, now in zip(self.layers, self._passes, strict=True):
            layer.forward(now)
        return self._passes[-1].h

    def _new(self, rows: int) -> tuple[Tensor, list[LayerPass]]:
        """(input, passes of the layers) for batches of one size."""
        k, inputs, _ = (weight := self.layers[0].weight).shape
        x = self._scratch.take("x", weight, rows, inputs)
        passes: list[LayerPass] = []
        for number, layer in enumerate(self.layers):
            h = passes[-1].h if passes else x.expand(k, -1, -1)
            passes.append(LayerPass(layer, h, number, self._scratch))
        return x, passes

    def backward(self, grad: Float[Tensor, "k b o"]) -> None:
        """Write the parameters' gradients, for the last `forward`. grad: in the outputs; overwritten."""
        self._backward(grad, learn=True)

    def input_gradient(self, grad: Float[Tensor, "k b o"], first: int) -> Float[Tensor, "b c"]:
        """Gradient in the inputs from column `first` on, for the last `forward`. grad: as in `backward`."""
        return self.layers[0].to_columns(self._backward(grad, learn=False), first)

    def _backward(self, grad: Tensor, learn: bool) -> Tensor:
        back = grad.mT
        for layer, now in zip(self.layers[:0:-1], self._passes[:0:-1], strict=True):
            layer.to_input(now, layer.backward(now, grad, back, learn))
            grad, back = now.dx, now.dx_back
        return self.layers[0].backward(self._passes[0], grad, back, learn)


AnyStack = Stack | CompiledStack


def make_stack(layers: Sequence[Layer], scratch: Scratch) -> AnyStack:
    """Stack of these layers: in machine code where it is wanted and supports them."""
    library = machine_code(layers, scratch.bfloat16) if scratch.compiled else None
    return Stack(layers, scratch) if library is None else CompiledStack(layers, scratch, library)


def ensemble_stack(
    critic: CriticEnsemble,
    scratch: Scratch,
    optimizer: FlatAdam | None = None,
    heads: int | None = None,
) -> AnyStack:
    """Stack of the first `heads` critics, by default of all. optimizer: holds the gradients; None: none."""
    k = heads or critic.heads
    places = {} if optimizer is None else optimizer.gradients()
    layers, last = [], len(critic.weights) - 1
    for i, (weight, bias) in enumerate(zip(critic.weights, critic.biases, strict=True)):
        grads = Parameters(places[weight], places[bias]) if places else None
        here = Parameters(weight.detach()[:k], bias.detach()[:k])
        hidden = i < last
        layers.append(
            Layer(here, ACTIVATIONS["relu"] if hidden else None, hidden and critic.layer_norm, grads)
        )
    return make_stack(layers, scratch)


def sequential_stack(
    net: nn.Sequential, scratch: Scratch, optimizer: FlatAdam | None = None
) -> AnyStack | None:
    """Stack of an `mlp`. None for one of other layers."""
    places = {} if optimizer is None else optimizer.gradients()
    layers: list[Layer] = []
    parts = [*net, nn.Identity()]
    linear = [i for i, part in enumerate(parts) if isinstance(part, nn.Linear)] + [len(parts) - 1]
    if linear[0] != 0:
        return None
    for first, after in pairwise(linear):
        made = _layer(parts[first], parts[first + 1 : after], places)
        if made is None:
            return None
        layers.append(made)
    return make_stack(layers, scratch)


def _layer(
    linear: nn.Module, behind: Sequence[nn.Module], places: dict[nn.Parameter, Tensor]
) -> Layer | None:
    """A linear layer with a norm and an activation, where they are behind it."""
    norms = [part for part in behind if isinstance(part, nn.LayerNorm)]
    activations = [_ACTIVATIONS[type(part)] for part in behind if type(part) in _ACTIVATIONS]
    known = [*norms, *behind[len(norms) :]]
    if [*behind] != known or len(norms) + len(activations) != len(behind) or any(n.eps != EPS for n in norms):
        return None
    sources = [linear, *norms]
    here = _parameters([p.detach() for part in sources for p in part.parameters()])
    grads = _parameters([places[p] for part in sources for p in part.parameters()]) if places else None
    return Layer(here, activations[0] if activations else None, bool(norms), grads)


def _parameters(found: Sequence[Tensor]) -> Parameters:
    """Parameters of nn.Linear, and of nn.LayerNorm where there is one, as those of one network."""
    affine = Affine(found[2], found[3]) if len(found) > 2 else None
    return Parameters(found[0].t().unsqueeze(0), found[1].view(1, 1, -1), affine)
