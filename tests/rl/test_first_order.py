"""First-order optimisation: the gradient is exact, stops at resets, and a resumed run equals an uninterrupted
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.flight.policy import FlightPolicy
from robo_rl.core.errors import RoboRLError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.rl.differentiable.first_order import FirstOrder, FirstOrderConfig
from sim.engines.quad.craft import load_craft
from sim.flight.flights import Flights
from sim.flight.vec_env import flight_spec
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses

CRAFT, SENSES = load_craft("cf2x_l2f"), FlightSenses(history=2)


def learner(
    updates: int = 6, lanes: int = 8, task: HoverTask | None = None, horizon: int = 5, value: bool = False
) -> FirstOrder:
    task = task or HoverTask(train_steps=9)
    torch.manual_seed(0)
    policy = FlightPolicy(flight_spec(task, SENSES), (16,), None, 2.0 * CRAFT.hover_speed - 1.0)
    flights = Flights(CRAFT, task, SENSES, lanes, seed=3, eager=True)
    return FirstOrder(policy, flights, FirstOrderConfig(updates=updates, horizon=horizon, value=value))


def weights(made: FirstOrder) -> Tensor:
    return torch.cat([p.detach().flatten() for p in made.policy.parameters()])


def test_the_gradient_is_that_of_finite_differences() -> None:
    """The bias of one motor, changed by +-1e-3: the cost of a rollout changes as its gradient predicts."""
    made = learner(task=HoverTask())
    bias = made.policy.weights()[-1][1]  # type: ignore[operator]
    start = made.env.state_dict()

    def cost(shift: float) -> Tensor:
        made.env.load_state_dict(dict(start))
        with torch.no_grad():
            bias[1] += shift
        total = torch.zeros(())
        for _ in range(5):
            step_cost, _ = made.env.step(made.policy.columns(made.env.obs))  # type: ignore[operator]
            total = total + step_cost.mean()
        with torch.no_grad():
            bias[1] -= shift
        return total

    made.policy.zero_grad()
    cost(0.0).backward()
    assert bias.grad is not None
    slope = (cost(1e-3) - cost(-1e-3)).item() / 2e-3
    assert bias.grad[1].item() == pytest.approx(slope, rel=2e-2)


class Line:
    """Points on a line: x' = x + action / 10, cost x^2; nothing ends."""

    def __init__(self, num: int) -> None:
        self.num, self.obs = num, torch.linspace(-1.0, 1.0, num).unsqueeze(0)

    def restart(self) -> None:
        self.obs = torch.linspace(-1.0, 1.0, self.num).unsqueeze(0)

    def detach(self) -> None:
        self.restart()  # every update from the same starts

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        self.obs = self.obs + 0.1 * action
        return self.obs[0].square(), torch.zeros(self.num, dtype=torch.bool)

    def state_dict(self) -> dict[str, Any]:
        return {"obs": self.obs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.obs = state["obs"]


class Gain(nn.Module):
    """action = gain x."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(()))

    def columns(self, x: Tensor) -> Tensor:
        return self.gain * x


def test_training_lowers_the_cost_of_points_on_a_line() -> None:
    """The best gain for a horizon is -10, which reaches 0 in one step: training approaches it from 0."""
    policy, env = Gain(), Line(9)
    made = FirstOrder(policy, env, FirstOrderConfig(updates=200, horizon=4, lr=0.3))
    first = made.update()["train/cost"]
    while not made.done:
        last = made.update()["train/cost"]
    assert last < 0.01 * first
    assert policy.gain.item() == pytest.approx(-10.0, abs=1.5)


@pytest.mark.slow
def test_training_lowers_the_cost() -> None:
    """Forty updates of a tiny policy: from the same starts the next half second costs less than before."""
    made = learner(updates=40, lanes=32, task=HoverTask(train_steps=60), horizon=24)
    start = made.env.state_dict()

    def cost() -> float:
        made.env.load_state_dict(dict(start))
        with torch.no_grad():
            return sum(float(made.env.step(made.policy.columns(made.env.obs))[0].mean()) for _ in range(50))  # type: ignore[operator]

    before = cost()
    made.env.load_state_dict(dict(start))
    while not made.done:
        made.update()
    assert cost() < 0.7 * before


def test_no_bound_of_the_gradient_is_no_gradient_of_zero() -> None:
    """grad_clip=0 is no bound, as for other learners: the update equals that of a very large bound."""
    ends = []
    for bound in (0.0, 1e9):
        made = learner(updates=2)
        made.config.grad_clip = bound
        before = weights(made)
        while not made.done:
            made.update()
        assert not torch.equal(weights(made), before)
        ends.append(weights(made))
    assert torch.equal(*ends)


@pytest.mark.parametrize("value", [False, True])
def test_a_resumed_run_is_the_same_run(value: bool, tmp_path: Path) -> None:
    """State, noise, starts and moments are restored: six updates equal three, a save, a load, three more."""
    whole = learner(value=value)
    for _ in range(6):
        whole.update()
    first = learner(value=value)
    for _ in range(3):
        first.update()
    save_state(tmp_path / "state", first.state_dict())
    second = learner(value=value)
    second.update()  # something to be overwritten
    second.load_state_dict(load_state(tmp_path / "state"))
    for _ in range(3):
        second.update()
    assert torch.equal(weights(second), weights(whole))


def test_non_finite_gradient_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the update and a remedy before the weights change."""
    made = learner()
    before = weights(made)
    monkeypatch.setattr(
        made.env, "step", lambda action: (action.sum(0) * float("nan"), torch.zeros(8, dtype=torch.bool))
    )
    with pytest.raises(RoboRLError, match="update 0 is not finite"):
        made.update()
    assert torch.equal(weights(made), before)


def test_bootstrap_terminated_raises_the_cost_of_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """V = 5 everywhere, all lanes terminate: `bootstrap_terminated` adds gamma V to the loss."""
    found = []
    for bootstrap_terminated in (False, True):
        made = learner(value=True, horizon=1)
        made.config.bootstrap_terminated = bootstrap_terminated
        assert made.value is not None
        monkeypatch.setattr(made.value, "target_value", lambda obs: torch.full((obs.shape[1],), 5.0))
        step = made.env.step

        def leave(action: Tensor, step: Any = step, env: Any = made.env) -> tuple[Tensor, Tensor]:
            cost, _ = step(action)
            env.terminated = torch.ones(8, dtype=torch.bool)
            return cost, env.terminated

        monkeypatch.setattr(made.env, "step", leave)
        found.append(made._valued(made.value)[0].item())
    assert found[1] - found[0] == pytest.approx(made.config.gamma * 5.0, rel=1e-5)
