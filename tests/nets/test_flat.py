"""One buffer for all parameters gives the same network and gradients."""

from __future__ import annotations

import copy

import torch

from robo_rl.nets.mlp import mlp
from robo_rl.nets.optim.flat import FlatAdam, flat_gradient, flatten_parameters


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


def test_the_optimiser_of_a_module_is_torchs() -> None:
    """The same bits as torch's fused Adam and AdamW over the buffer, with a bound on the gradient's norm."""
    for decay in (0.0, 0.1):
        net, other, x = net_pair()
        flat = flatten_parameters(other)
        kind = torch.optim.AdamW if decay else torch.optim.Adam
        theirs = kind([flat], lr=0.1, betas=(0.9, 0.95), weight_decay=decay, fused=True)
        ours = FlatAdam(net, 0.1, clip=0.5, weight_decay=decay, beta2=0.95)
        for _ in range(5):
            ours.descend(net(x).square().mean())
            flat.grad = flat_gradient(other(x).square().mean(), other)
            torch.nn.utils.clip_grad_norm_([flat], 0.5)
            theirs.step()
        assert torch.equal(ours.flat, flat)


def test_nothing_of_an_optimiser_moves_in_memory() -> None:
    """A captured graph keeps addresses: steps, loading, restarting and another rate write in place."""
    net, _, x = net_pair()
    made = FlatAdam(net, 0.1)
    fresh = made.state_dict()
    made.descend(net(x).square().mean())
    places = [tensor.data_ptr() for tensor in (made.flat, made.flat.grad, *made.tensors())]  # type: ignore[union-attr]
    moments = [tensor.clone() for tensor in made.tensors()]
    later = made.state_dict()
    made.restart()
    assert all(tensor.eq(0.0).all() for tensor in made.tensors())
    made.load_state_dict(later)
    assert all(torch.equal(a, b) for a, b in zip(made.tensors(), moments, strict=True))
    made.load_state_dict(fresh)
    assert all(tensor.eq(0.0).all() for tensor in made.tensors())
    made.load_state_dict({"state": {}, "param_groups": [{"lr": 0.3}]})  # as saved before the first step, once
    made.set_lr(0.2)
    made.descend(net(x).square().mean())
    assert places == [tensor.data_ptr() for tensor in (made.flat, made.flat.grad, *made.tensors())]  # type: ignore[union-attr]


def net_pair() -> tuple[torch.nn.Module, torch.nn.Module, torch.Tensor]:
    """Two networks with the same weights, and an input."""
    torch.manual_seed(0)
    net = mlp(3, (4,), 1)
    return net, copy.deepcopy(net), torch.randn(6, 3)
