"""Value network of first-order learning: targets by hand, and no cost after a termination."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robo_rl.rl.differentiable.cost_to_go import LAMBDA, CostToGo, Window


def window(costs: list[float], ended: list[bool], terminated: list[bool]) -> Window:
    made = Window()
    for cost, over, done in zip(costs, ended, terminated, strict=True):
        made.add(
            torch.zeros(2, 1),
            torch.zeros(2, 1),
            torch.tensor([cost]),
            torch.tensor([over]),
            torch.tensor([done]),
        )
    return made


def value_of(constant: float, gamma: float = 0.9) -> CostToGo:
    """V = constant everywhere."""
    made = CostToGo(torch.zeros(2, 1), None, gamma)
    for part in (made.net, made.target):
        for parameter in part.parameters():
            torch.nn.init.zeros_(parameter)
        last = part[-1]
        assert isinstance(last, torch.nn.Linear)
        torch.nn.init.constant_(last.bias, constant * (1.0 - gamma))
    return made


def test_targets_bootstrap_behind_the_clock_and_not_behind_an_end() -> None:
    """V = 10, gamma = 0.9, costs 1, 2, 3. Termination at step 1: 2; time-out at step 1: 2 + 9; step 0: 1 +
    0.9 mix.
    """
    made = value_of(10.0)
    last = 3.0 + 9.0
    ended = made.targets(window([1.0, 2.0, 3.0], [False, True, False], [False, True, False]))[:, 0]
    clock = made.targets(window([1.0, 2.0, 3.0], [False, True, False], [False, False, False]))[:, 0]

    def before(target: float) -> float:
        return 1.0 + 0.9 * ((1.0 - LAMBDA) * 10.0 + LAMBDA * target)

    assert ended.tolist() == pytest.approx([before(2.0), 2.0, last], rel=1e-5)
    assert clock.tolist() == pytest.approx([before(11.0), 11.0, last], rel=1e-5)


def test_it_learns_a_constant_cost() -> None:
    """Cost 1 in every step without an end: V = 1 / (1 - gamma) = 10."""
    torch.manual_seed(0)
    made = CostToGo(torch.zeros(2, 8), None, 0.9)
    for _ in range(150):
        steps = Window()
        for _ in range(10):
            steps.add(
                torch.zeros(2, 8), torch.zeros(2, 8), torch.ones(8), *[torch.zeros(8, dtype=torch.bool)] * 2
            )
        made.learn(steps, 1.0)
    found: Tensor = made.target_value(torch.zeros(2, 1))
    assert found.item() == pytest.approx(10.0, rel=0.05)
