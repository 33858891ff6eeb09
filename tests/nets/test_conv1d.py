"""Fast convolutions equal plain ones: forward, backward and in an exported graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from robo_rl.nets import conv1d
from robo_rl.nets.conv1d import Conv1d, Upsample1d
from robo_rl.nets.registry import make_net
from robo_rl.nets.unet1d import Unet1dConfig


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "length"), [(5, 1, 2, 8), (3, 2, 1, 8), (1, 1, 0, 5), (5, 1, 2, 1)]
)
def test_convolution_equals_torch(kernel: int, stride: int, padding: int, length: int) -> None:
    """Same values and same gradients as torch's own kernel, for every layer shape in the U-Net."""
    torch.manual_seed(0)
    ours = Conv1d(6, 4, kernel, stride=stride, padding=padding).double()
    x = torch.randn(3, 6, length, dtype=torch.double, requires_grad=True)
    y = ours(x)
    expected = F.conv1d(x, ours.weight, ours.bias, stride, padding)
    torch.testing.assert_close(y, expected)
    wanted = [x, ours.weight, ours.bias]
    for a, b in zip(
        torch.autograd.grad(y.square().sum(), wanted),
        torch.autograd.grad(expected.square().sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_upsampling_equals_torch(length: int) -> None:
    """The two half-products are the transposed convolution of kernel 4, stride 2, padding 1."""
    torch.manual_seed(0)
    layer = Upsample1d(4).double()
    x = torch.randn(3, 4, length, dtype=torch.double)
    torch.testing.assert_close(layer(x), nn.ConvTranspose1d.forward(layer, x))


def test_unet_is_equal_with_either_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel depends on batch and length; the result must not."""
    torch.manual_seed(0)
    net = make_net(Unet1dConfig(widths=[16, 32, 64], time_dim=32), 2, 16, 3)
    x, t, cond = torch.randn(3, 16, 2), torch.rand(3), torch.randn(3, 3)
    with torch.no_grad():
        fast = net(x, t, cond)
        monkeypatch.setattr(conv1d, "_use_matmul", lambda x, length: False)
        torch.testing.assert_close(fast, net(x, t, cond), atol=2e-6, rtol=1e-5)


def test_exported_graph_holds_convolutions() -> None:
    """Runtimes have their own fast convolution: an unfolded product would hide it from them.

    Two per residual block, one more where the width changes: 2 + 2 + 1 at both levels down and 2 + 2 + 1 up,
    4 in the middle, one to shrink, two at the end.
    """
    net = make_net(Unet1dConfig(widths=[16, 32], time_dim=16), 2, 8, 3).eval()
    inputs = (torch.randn(1, 8, 2), torch.rand(1), torch.randn(1, 3))
    program = torch.export.export(net, inputs)
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert sum("conv1d" in name for name in called) == 22
    assert sum("conv_transpose1d" in name for name in called) == 1
    assert not any("unfold" in name for name in called)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(*inputs), net(*inputs), atol=1e-5, rtol=1e-5)
