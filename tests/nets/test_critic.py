"""Critic ensembles: K independent networks in one matrix product."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from robo_rl.nets.critic import CriticEnsemble


def test_every_head_is_the_network_it_stands_for() -> None:
    """Batched product against Linear, LayerNorm without gain, ReLU, Linear, head by head."""
    torch.manual_seed(0)
    critic = CriticEnsemble(5, (8,), heads=3)
    x, action = torch.randn(7, 3), torch.randn(7, 2)
    together = critic(x, action)
    for k in range(3):
        (w0, w1), (b0, b1) = [w[k] for w in critic.weights], [b[k] for b in critic.biases]
        alone = torch.relu(F.layer_norm(torch.cat([x, action], 1) @ w0 + b0, (8,))) @ w1 + b1
        torch.testing.assert_close(together[k], alone.squeeze(1))
    torch.testing.assert_close(critic(x, action, heads=2), together[:2])


def test_heads_start_apart_and_learn_apart() -> None:
    """Equal heads would make the minimum useless; gradients of one must not reach another."""
    torch.manual_seed(0)
    critic = CriticEnsemble(3, (8,), heads=2)
    q = critic(torch.randn(5, 2), torch.randn(5, 1))
    assert not torch.equal(q[0], q[1])
    q[0].sum().backward()
    assert all(p.grad is not None and p.grad[1].eq(0).all() for p in critic.parameters())


def test_the_bias_is_where_values_start() -> None:
    """With sparse rewards a base's own success rate is a better start than 0."""
    torch.manual_seed(0)
    critic = CriticEnsemble(3, (64,), heads=256, bias=0.7)  # many heads: what is random averages out
    assert abs(critic(torch.randn(9, 2), torch.randn(9, 1)).mean() - 0.7) < 0.1


def test_comparison_equals_two_evaluations() -> None:
    """One pass over both, for any batch size: the first minus the margin, the second plus it."""
    critic = CriticEnsemble(3, (8,), heads=4)
    for rows in (1, 6):
        x, first, second = torch.randn(rows, 2), torch.randn(rows, 1), torch.randn(rows, 1)
        q_first, q_second = critic.compare(x, first, second, margin=0.5)
        below, above = critic(x, first), critic(x, second)
        torch.testing.assert_close(q_first, below.mean(0) - 0.5 * below.std(0, correction=0))
        torch.testing.assert_close(q_second, above.mean(0) + 0.5 * above.std(0, correction=0))


def test_margin_lowers_the_first_and_raises_the_second() -> None:
    """The mean minus the standard deviation of two numbers is the smaller one."""
    critic = CriticEnsemble(3, (8,), heads=2)
    x, first, second = torch.randn(5, 2), torch.randn(5, 1), torch.randn(5, 1)
    q_first, q_second = critic.compare(x, first, second, margin=1.0)
    torch.testing.assert_close(q_first, critic(x, first).amin(0))
    torch.testing.assert_close(q_second, critic(x, second).amax(0))


def test_without_a_margin_the_means_are_compared() -> None:
    """As in exploration and bootstrapping of a learner."""
    critic = CriticEnsemble(3, (8,), heads=3)
    x, first, second = torch.randn(5, 2), torch.randn(5, 1), torch.randn(5, 1)
    q_first, q_second = critic.compare(x, first, second)
    torch.testing.assert_close(q_first, critic(x, first).mean(0))
    torch.testing.assert_close(q_second, critic(x, second).mean(0))


def test_a_configuration_builds_an_equal_critic() -> None:
    """A gated residual saves its critics in its checkpoint."""
    critic = CriticEnsemble(4, (8, 8), heads=3, layer_norm=False)
    again = CriticEnsemble(**critic.config())
    again.load_state_dict(critic.state_dict())
    x, action = torch.randn(5, 3), torch.randn(5, 1)
    assert torch.equal(again(x, action), critic(x, action))
