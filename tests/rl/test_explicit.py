"""Updates with the backward pass written out, compared with autograd's: the same weights after many."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.files import machine_code
from robo_rl.core.seeding import generator
from robo_rl.nets.gradients import compiled as compiled_passes
from robo_rl.nets.gradients.compiled import CompiledStack
from robo_rl.nets.gradients.layer import Scratch
from robo_rl.nets.gradients.stack import sequential_stack
from robo_rl.nets.mlp import mlp
from robo_rl.nets.optim.flat import FlatAdam
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.explicit import ActionGradient
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import critic_gradient, critic_loss
from tests.rl.test_targets import ROWS, batch

RESIDUAL = ResidualMap(2, 0.3)
KINDS: dict[str, tuple[ActionMap, dict[str, Any]]] = {
    "sac": (DirectMap(2), {"layer_norm": False, "auto_alpha": True, "alpha": 0.1, "entropy_in_target": True,
                           "actor_reduce": "min"}),
    "clip_std": (DirectMap(2), {"clip_std": True, "log_std_min": -0.02, "actor_reduce": "min"}),
    "td3": (DirectMap(2), {"actor": "deterministic", "actor_reduce": "first", "actor_delay": 2}),
    "residual": (RESIDUAL, {"actor": "deterministic", "gate": True, "penalty": 0.1, "grad_clip": 0.5}),
    "redq": (RESIDUAL, {"heads": 4, "target_subset": 2, "actor_reduce": "mean", "activation": "silu"}),
    "steering": (LatentMap(2, 1, 1.5, "gaussian"), {"activation": "tanh", "hidden": [12, 16, 8]}),
    "c51": (DirectMap(2), {"critic_loss": "c51", "atoms": 7, "actor_reduce": "mean", "weight_decay": 0.1}),
    "hl_gauss": (DirectMap(2), {"critic_loss": "hl_gauss", "atoms": 7, "actor": "deterministic"}),
    "max_target": (DirectMap(2), {"target_draws": 3, "entropy_in_target": True, "log_std_min": -20.0,
                                  "init_std": 0.01, "critic_reduce": "mean", "grad_clip": 0.3}),
    "wide": (DirectMap(2), {"hidden": [160, 45], "heads": 1}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Machine code is used on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("passes", ["compiled", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_updates_equal_those_of_autograd(kind: str, passes: Literal["compiled", "torch"]) -> None:
    """Burn-in with unknown returns, then updates with an unknown reward; only rounding may differ."""
    action_map, settings = KINDS[kind]
    values: dict[str, Any] = {"hidden": [16, 12], "lr_actor": 1e-2, "lr_critic": 1e-2} | settings
    cfg = LearnerConfig(**values)
    data = batch(action_map.critic_dim, action_map.ctx_dim)
    data = dataclasses.replace(
        data, mc_return=data.mc_return.clone().index_fill_(0, torch.arange(9), torch.nan)
    )
    if cfg.critic_loss == "mse":
        data = dataclasses.replace(
            data, reward=data.reward.clone().index_fill_(0, torch.arange(3), torch.nan)
        )
    made = []
    for how in (passes, "autograd"):
        learner = OffPolicyLearner(4, action_map, cfg, generator("explicit"), passes=how)
        for number in range(6):
            learner.burn_in(data, monte_carlo=number < 3)
        for _ in range(8):
            info = learner.update(data)
        made.append((learner, info))
    (ours, logs), (theirs, expected) = made
    assert logs.keys() == expected.keys()
    for name, value in logs.items():
        torch.testing.assert_close(value, expected[name], rtol=2e-3, atol=2e-4, msg=name)
    for name, optimizer in ours._optimizers().items():
        other = theirs._optimizers()[name].flat
        apart = (optimizer.flat - other).abs()
        assert apart.mean() < 1e-4, name  # Adam's first steps have the size of the rate, 1e-2
        assert (optimizer.flat - other).norm() < 1e-3 * other.norm(), name


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_gradients_of_a_network_equal_autograds(activation: str, norm: bool, compiled: bool) -> None:
    """Outputs, gradient of every parameter and of the input's last two columns. Machine code knows relu."""
    torch.manual_seed(0)
    net = mlp(5, (70, 37), 3, layer_norm=norm, activation=activation)
    optimizer = FlatAdam(net, 1e-3)
    stack = sequential_stack(net, Scratch(compiled), optimizer)
    assert stack is not None
    assert isinstance(stack, CompiledStack) == (compiled and activation == "relu")
    x, pull = torch.randn(ROWS, 5, requires_grad=True), torch.randn(ROWS, 3)
    out = net(x)
    expected = torch.autograd.grad(out, [*net.parameters(), x], pull)
    with torch.no_grad():
        torch.testing.assert_close(stack.forward(x[:, :3], x[:, 3:])[0], out)
        columns = stack.input_gradient(pull.clone().unsqueeze(0), 3)
        stack.forward(x)
        stack.backward(pull.clone().unsqueeze(0))
    torch.testing.assert_close(columns, expected[-1][:, 3:], rtol=1e-4, atol=1e-5)
    for place, gradient in zip(optimizer.gradients().values(), expected[:-1], strict=True):
        torch.testing.assert_close(place, gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("own", [False, True])
def test_targets_that_are_not_finite_are_masked(own: bool) -> None:
    """As in `critic_loss`: an unknown return in a TD target, or an infinite one, changes no weight."""
    target = torch.randn(2, ROWS) if own else torch.randn(ROWS)
    target[..., :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    q = torch.randn(2, ROWS, requires_grad=True)
    loss, logs = critic_loss(q, target)
    (expected,) = torch.autograd.grad(loss, q)
    found, ours = critic_gradient(q.detach(), target)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours, logs)
    assert found[:, :3].eq(0.0).all()


def test_equal_heads_share_the_gradient_of_their_minimum() -> None:
    """As autograd has it: two copies of a head give the gradient of one."""
    learner = OffPolicyLearner(4, DirectMap(2), LearnerConfig(hidden=[8]), generator("equal"))
    with torch.no_grad():
        for parameter in learner.critic.parameters():
            parameter[1] = parameter[0]
    obs, action = torch.randn(ROWS, 4), torch.randn(ROWS, 2, requires_grad=True)
    (expected,) = torch.autograd.grad(learner.critic(obs, action).amin(0).sum(), action)
    with torch.no_grad():
        found = ActionGradient(learner.critic, "min", Scratch(compiled=True))(obs, action)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_networks_of_other_layers_take_autograd() -> None:
    """A norm behind the activation, or an unknown activation, has no written-out form."""
    mish = mlp(3, (4,), 2, activation="mish")
    swapped = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)
    )
    assert sequential_stack(mish, Scratch(compiled=True)) is None
    assert sequential_stack(swapped, Scratch(compiled=True)) is None


def test_without_a_compiler_updates_run_in_torch_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training works on any machine, and the message says what makes it faster."""
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_code.shutil, "which", lambda name: None)
    with pytest.warns(UserWarning, match=r"apt install g\+\+"):
        assert compiled_passes._library.__wrapped__(bfloat16=False) is None


def test_nan_passes_through_machine_code() -> None:
    """As in torch: a network that has diverged shows it."""
    net = mlp(2, (8,), 1, layer_norm=False)
    stack = sequential_stack(net, Scratch(compiled=True))
    assert isinstance(stack, CompiledStack)
    x = torch.tensor([[1.0, torch.nan], [1.0, 2.0]])
    out = stack.forward(x)[0]
    assert out[0].isnan().all()
    torch.testing.assert_close(out[1], net(x)[1].detach())


@pytest.mark.parametrize("kind", ["sac", "residual", "c51", "steering"])
@pytest.mark.parametrize("rows", [3, 600])
def test_acting_in_machine_code_equals_acting_in_torch(kind: str, rows: int) -> None:
    """Few rows and several blocks of rows, with and without the gate."""
    action_map, settings = KINDS[kind]
    values: dict[str, Any] = {"hidden": [16, 12], "lr_actor": 1e-2, "gate_margin": 0.5} | settings
    obs, ctx = torch.randn(rows, 4), torch.randn(rows, action_map.ctx_dim).clamp(-1.0, 1.0)
    made = []
    for passes in ("compiled", "autograd"):
        learner = OffPolicyLearner(4, action_map, LearnerConfig(**values), generator("acting"), passes=passes)  # type: ignore[arg-type]
        learner.update(batch(action_map.critic_dim, action_map.ctx_dim))
        learner.update(batch(action_map.critic_dim, action_map.ctx_dim))
        made.append([learner.act(obs, ctx, explore) for explore in (True, False)])
    for found, expected in zip(*made, strict=True):
        apart = (found - expected).abs().amax(dim=1)
        assert (apart < 1e-3).float().mean() > 0.99  # the gate may decide otherwise where Q is equal
