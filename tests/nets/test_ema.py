"""The moving average of weights."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from robo_rl.nets.optim.ema import ema_decay, ema_update


@pytest.mark.parametrize(("step", "decay"), [(0, 0.0), (15, 0.875), (9_999, 0.999), (10**9, 0.9999)])
def test_power_schedule(step: int, decay: float) -> None:
    """1 - (1 + step)^-0.75: 16^-0.75 = 1/8, 10^4^-0.75 = 1/1000, and a ceiling."""
    assert ema_decay(step) == pytest.approx(decay, abs=1e-12)


def test_average_moves_by_the_rest_of_the_decay() -> None:
    """decay 0.75 leaves three quarters of the old weight; decay 0 copies."""
    model, average = nn.Linear(1, 1), nn.Linear(1, 1)
    nn.init.constant_(model.weight, 4.0)
    nn.init.constant_(average.weight, 0.0)
    ema_update(average, model, 0.75)
    assert float(average.weight.detach()) == 1.0
    ema_update(average, model, 0.0)
    assert float(average.weight.detach()) == 4.0


def test_model_is_left_alone() -> None:
    """The update is in place on the average only."""
    model, average = nn.Linear(3, 2), nn.Linear(3, 2)
    before = copy.deepcopy(model.state_dict())
    ema_update(average, model, 0.5)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
