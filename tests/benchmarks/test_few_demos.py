"""Windows of `benchmarks/few_demos.py`, which change the data of a training."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robo_rl.core.spec import ActionSpec

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("few_demos")


def two_episodes() -> Any:
    """Actions 0, 3, 6 and 9, 9 in limits of 10."""
    actions = [np.array([[0.0], [3.0], [6.0]], np.float32), np.full((2, 1), 9.0, np.float32)]
    episodes = [SimpleNamespace(action=each, frames=len(each)) for each in actions]
    return SimpleNamespace(episodes=episodes, spec=SimpleNamespace(action=ActionSpec((-10.0,), (10.0,))))


def test_a_window_is_followed_by_one_of_its_own_episode(module: Any) -> None:
    """Three frames, then two: the last of each is followed by itself."""
    assert module.successors(two_episodes()).tolist() == [1, 2, 2, 4, 4]


def test_actions_are_smoothed_inside_their_episode(module: Any) -> None:
    """Means over one frame before and after, ends repeated: (0 + 0 + 3) / 3 = 1, 3, (3 + 6 + 6) / 3 = 5."""
    chunks = module.smooth_chunks(two_episodes(), module.Variant(chunk=2, smooth=1))
    first, last = [[0.1, 0.3], [0.3, 0.5], [0.5, 0.5]], [[0.9, 0.9]] * 2
    torch.testing.assert_close(chunks[..., 0], torch.tensor([*first, *last]))
