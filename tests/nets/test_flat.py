"""One buffer for all parameters gives the same network and gradients."""

from __future__ import annotations

import torch

from robo_rl.nets.flat import flat_gradient, flatten_parameters
from robo_rl.nets.mlp import mlp


def test_the_buffer_is_the_network() -> None:
    """Flattening changes nothing; writing to the buffer, or loading weights, changes both."""
    torch.manual_seed(0)
    net, x = mlp(3, (4,), 2), torch.randn(5, 3)
    before, weights = net(x), {key: value.clone() for key, value in net.state_dict().items()}
    flat = flatten_parameters(net)
    assert torch.equal(net(x), before)
    assert flat.numel() == 3 * 4 + 4 + 4 * 2 + 2
    flat.zero_()
    assert net(x).eq(0.0).all()
    net.load_state_dict(weights)
    assert torch.equal(net(x), before)
    assert torch.equal(flat, torch.cat([value.flatten() for value in weights.values()]))


def test_gradient_equals_backward_without_side_effects() -> None:
    """The loss passes through another network, which must receive no gradient: an actor's step does not
    change critics.
    """
    torch.manual_seed(0)
    actor, critic, x = mlp(3, (4,), 2), mlp(2, (4,), 1), torch.randn(5, 3)
    flatten_parameters(actor)
    found = flat_gradient(critic(actor(x)).sum(), actor)
    assert all(p.grad is None for net in (actor, critic) for p in net.parameters())
    critic(actor(x)).sum().backward()
    torch.testing.assert_close(
        found, torch.cat([p.grad.flatten() for p in actor.parameters() if p.grad is not None])
    )


def test_an_optimiser_over_the_buffer_is_one_over_the_parameters() -> None:
    """Adam is element-wise: one tensor or four, the same steps."""
    torch.manual_seed(0)
    net, x = mlp(3, (4,), 1), torch.randn(6, 3)
    other = mlp(3, (4,), 1)
    other.load_state_dict(net.state_dict())
    flat = flatten_parameters(net)
    first, second = torch.optim.Adam([flat], lr=0.1, fused=True), torch.optim.Adam(other.parameters(), lr=0.1)
    for _ in range(5):
        flat.grad = flat_gradient(net(x).square().mean(), net)
        first.step()
        second.zero_grad()
        other(x).square().mean().backward()
        second.step()
    torch.testing.assert_close(net(x), other(x))
