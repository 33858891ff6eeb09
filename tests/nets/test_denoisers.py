"""Denoisers share one signature; the U-Net and the time embedding are as published."""

from __future__ import annotations

import math

import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.registry import NetConfig, make_net, net_config, net_config_json
from robo_rl.nets.time_embedding import SinusoidalTime
from robo_rl.nets.transformer import TransformerConfig
from robo_rl.nets.unet1d import Unet1dConfig

SMALL: dict[str, NetConfig] = {
    "mlp": MlpDenoiserConfig(width=32, depth=2),
    "mlp-residual": MlpDenoiserConfig(width=32, depth=2, residual=True),
    "unet1d": Unet1dConfig(widths=[16, 32], time_dim=16),
    "transformer": TransformerConfig(width=32, depth=2, heads=2),
    "transformer-causal": TransformerConfig(width=32, depth=2, heads=2, causal=True),
}


@pytest.mark.parametrize("name", SMALL)
def test_shape_and_gradient(name: str) -> None:
    """(b, Tp, a) in, (b, Tp, a) out, and after one step every weight affects the output."""
    net = make_net(SMALL[name], action_dim=3, chunk=8, cond_dim=5)
    x, t, cond = torch.randn(4, 8, 3), torch.rand(4), torch.randn(4, 5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):  # zero-initialised gates open one after the other
        optimizer.zero_grad()
        (net(x, t, cond) - 1.0).square().mean().backward()
        optimizer.step()
    assert net(x, t, cond).shape == x.shape
    silent = [n for n, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not silent


@pytest.mark.parametrize("name", SMALL)
def test_rows_are_independent(name: str) -> None:
    """Batching lanes must not change the result of a lane (no batch statistics)."""
    torch.manual_seed(0)
    net = make_net(SMALL[name], 2, 8, 3)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x, t, cond = torch.randn(5, 8, 2), torch.rand(5), torch.randn(5, 3)
    alone = torch.cat([net(x[i : i + 1], t[i : i + 1], cond[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(net(x, t, cond), alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_time_and_condition_matter(name: str) -> None:
    """A network that ignores either would still train, but badly."""
    torch.manual_seed(0)
    net = make_net(SMALL[name], 2, 8, 3)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x, t, cond = torch.randn(1, 8, 2), torch.zeros(1), torch.zeros(1, 3)
    out = net(x, t, cond)
    assert not torch.allclose(out, net(x, t + 0.5, cond), atol=1e-5)
    assert not torch.allclose(out, net(x, t, cond + 1.0), atol=1e-5)


def test_causal_transformer_does_not_look_ahead() -> None:
    """Changing the last action must not change earlier outputs."""
    net = make_net(SMALL["transformer-causal"], 2, 8, 3)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x, t, cond = torch.randn(1, 8, 2), torch.rand(1), torch.randn(1, 3)
    moved = x.clone()
    moved[:, -1] += 1.0
    difference = (net(x, t, cond) - net(moved, t, cond)).abs().amax(dim=(0, 2))
    assert difference[:-1].max() < 1e-6 < difference[-1]


@pytest.mark.parametrize(("widths", "count"), [([256, 512, 1024], 65_783_298), ([64, 128, 256], 5_412_162)])
def test_unet_has_the_published_size(widths: list[int], count: int) -> None:
    """Diffusion Policy's low-dimensional U-Net: a = 2, To = 2 of 20 observations."""
    with torch.device("meta"):
        net = make_net(Unet1dConfig(widths=widths), action_dim=2, chunk=16, cond_dim=40)
    assert sum(p.numel() for p in net.parameters()) == count


def test_time_embedding_by_hand() -> None:
    """dim 4: frequencies 1 and 1e-4 times the scale, sines before cosines; t = 0.5 at scale 100 is step
    50.
    """
    embedded = SinusoidalTime(4, scale=100.0)(torch.tensor([0.5]))
    expected = [math.sin(50.0), math.sin(50.0e-4), math.cos(50.0), math.cos(50.0e-4)]
    torch.testing.assert_close(embedded, torch.tensor([expected]), atol=1e-5, rtol=1e-5)


def test_configurations_survive_json() -> None:
    """A checkpoint stores names and numbers, from which the same network is built."""
    for config in SMALL.values():
        assert net_config(net_config_json(config)) == config


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MlpDenoiserConfig(time_dim=33), "time_dim must be even, found 33"),
        (Unet1dConfig(time_dim=33), "time_dim must be even, found 33"),
        (MlpDenoiserConfig(time_dim=0), r"net\.time_dim=0"),
        (MlpDenoiserConfig(width=0), r"net\.width=0"),
        (TransformerConfig(heads=0), r"net\.heads=0"),
        (Unet1dConfig(groups=0), r"net\.groups=0"),
        (Unet1dConfig(kernel=-1), r"net\.kernel=-1"),
        (Unet1dConfig(widths=[0, 8]), "widths"),
    ],
)
def test_sizes_that_make_no_network_are_named(config: NetConfig, words: str) -> None:
    """Most gave an error of torch at the first update, and some a network without a time input."""
    with pytest.raises(ConfigError, match=words):
        make_net(config, action_dim=2, chunk=8, cond_dim=4)


def test_impossible_networks_are_refused() -> None:
    """The message says which number has to change."""
    with pytest.raises(ConfigError, match="chunk divisible by 4, found 6"):
        make_net(Unet1dConfig(), 2, 6, 3)
    with pytest.raises(ConfigError, match="divisible by groups=8"):
        make_net(Unet1dConfig(widths=[12, 24]), 2, 8, 3)
    with pytest.raises(ConfigError, match="heads=3"):
        make_net(TransformerConfig(width=32, heads=3), 2, 8, 3)
    with pytest.raises(UnknownNameError, match="unet1d"):
        make_net(NetConfig("unet"), 2, 8, 3)
    with pytest.raises(ConfigError, match="wdth"):
        net_config({"name": "mlp", "wdth": 3})
