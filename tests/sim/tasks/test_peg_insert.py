"""Conditions of an insertion, by numbers computed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sim.bodies.pose import Pose
from sim.tasks.arm.peg_insert import TIP_M, PegInsertTask

MOUTH_M = torch.tensor([[0.5, 0.05, 0.06]])


def upright(depth_m: float, aside_m: float = 0.0) -> Any:
    """View of one peg that points straight down, with its tip this deep below the mouth and this far from its
    axis.
    """
    peg = Pose(
        MOUTH_M + torch.tensor([[aside_m, 0.0, TIP_M - depth_m]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    )
    return SimpleNamespace(object_pose=lambda name: {"peg": peg}[name], goal=MOUTH_M)


@pytest.mark.parametrize(
    ("depth_m", "aside_m", "inserted"), [(0.029, 0.0, False), (0.031, 0.0, True), (0.031, 0.009, False)]
)
def test_a_peg_is_inserted_at_three_centimetres_in_the_hole_and_not_beside_it(
    depth_m: float, aside_m: float, inserted: bool
) -> None:
    assert bool(PegInsertTask().solved(upright(depth_m, aside_m))) is inserted


def test_the_reward_for_depth_is_the_share_of_the_way_and_nothing_beside_the_hole() -> None:
    task = PegInsertTask()
    shares = [
        float(task.terms(upright(depth, aside))["depth"])
        for depth, aside in ((0.015, 0.0), (0.05, 0.0), (0.02, 0.01))
    ]
    assert shares == pytest.approx([0.5, 1.0, 0.0], abs=1e-5)
