"""Push-T: the covered area by hand and by counting points, and the effect of a planned push."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import EpisodeSeeds
from sim.scenes.task_env import make_task_env
from sim.tasks.arm.pushing import STICK_M, detour, faces, push
from sim.tasks.arm.tee import UNIT_M, gap_m, share_covered


def covered(x_m: float, y_m: float, turn_rad: float) -> float:
    return float(share_covered(torch.tensor([[x_m, y_m]]).double(), torch.tensor([turn_rad]).double()))


@pytest.mark.parametrize(
    ("x_m", "y_m", "turn_rad", "share"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (
            0.1 * UNIT_M,
            0.0,
            0.0,
            1.0 - 0.4 / 7.0,
        ),  # bar and stem lose a tenth of a unit each, of heights 1 and 3
        (0.0, 0.1 * UNIT_M, 0.0, 1.0 - 0.4 / 7.0),  # the sides seen from above are 4 units wide together
        (
            0.0,
            UNIT_M,
            0.0,
            3.0 / 7.0,
        ),  # the bar is off but for the stem's top, which it covers: 1, and stem on stem: 2
        (0.5, 0.0, 1.0, 0.0),
        (0.0, 12.0 / 7.0 * UNIT_M, math.pi, 4.0 / 7.0),  # upside down, bar on bar
    ],
)
def test_covered_area_by_hand(x_m: float, y_m: float, turn_rad: float, share: float) -> None:
    """The area is 7 units."""
    assert covered(x_m, y_m, turn_rad) == pytest.approx(share, abs=2e-4)


def test_covered_area_by_counting() -> None:
    """Points half a millimetre apart agree within the resolution of the grid."""
    generator = torch.Generator().manual_seed(0)
    place = (torch.rand(60, 2, generator=generator).double() - 0.5) * 0.1
    turn = (torch.rand(60, generator=generator).double() - 0.5) * 7.0
    x, y = (
        torch.arange(-0.06, 0.06, 5e-4).double() + 2.5e-4,
        torch.arange(-0.08, 0.045, 5e-4).double() + 2.5e-4,
    )
    points = torch.stack(torch.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)
    points = points[gap_m(points[None])[0] < 0.0]

    def inside(place: Tensor, turn: Tensor) -> Tensor:
        away, cos, sin = points - place, turn.cos(), turn.sin()
        seen = torch.stack([cos * away[:, 0] + sin * away[:, 1], cos * away[:, 1] - sin * away[:, 0]], -1)
        return (gap_m(seen[None])[0] < 0.0).double().mean()

    counted = torch.stack([inside(place[i], turn[i]) for i in range(60)])
    torch.testing.assert_close(share_covered(place, turn), counted, rtol=0, atol=5e-3)


def test_the_stick_fits_where_it_may_push() -> None:
    """Touching only its face, also in the corners between bar and stem."""
    point, normal = faces(torch.zeros(1).double())
    gap = gap_m((point - STICK_M * normal)[None])[0]
    torch.testing.assert_close(gap, torch.full_like(gap, STICK_M), rtol=0, atol=1e-9)


def test_a_push_is_planned_against_the_error() -> None:
    """The T has to move along +x: the stick is at its side, at the height of the middle, and pushes there."""
    stick = torch.tensor([[-0.015 - STICK_M, 0.0]]).double()
    point, _ = faces(stick)
    open_ = torch.ones(1, len(point), dtype=torch.bool)
    goal, pushing = push(stick, torch.tensor([[0.05, 0.0, 0.0]]).double(), open_)
    assert bool(pushing)
    assert goal[0, 0] > 0.0
    goal, pushing = push(stick, torch.tensor([[-0.05, 0.0, 0.0]]).double(), open_)
    assert not pushing
    assert goal[0, 0] < stick[0, 0]  # away from the T, to get around it


def test_a_detour_touches_nothing() -> None:
    """Followed point by point, by steps of at most 8 mm, from any side to any other."""
    angle = torch.linspace(0.0, 2 * math.pi, 25)[:-1].double()
    ring = 0.1 * torch.stack([angle.cos(), angle.sin()], -1) + torch.tensor([0.0, 0.0107])
    stick, goal = ring.repeat_interleave(24, 0), ring.repeat(24, 1)
    for _ in range(80):
        move = detour(stick, goal) - stick
        stick = stick + move * (0.008 / move.norm(dim=-1, keepdim=True).clamp_min(0.008))
        assert float(gap_m(stick[:, None]).min()) > STICK_M
    assert float((stick - goal).norm(dim=-1).max()) < 1e-3


def test_an_action_has_no_height() -> None:
    """Two numbers, and the tool stays where it started, within what its servos give."""
    env = make_task_env("push_t", 4)
    assert env.spec.action.dim == 2
    env.reset(EpisodeSeeds(("plane", 0)))
    for _ in range(20):
        env.step(torch.tensor([0.5, 0.5]).expand(4, 2))
    assert float((env.view.tool.m[:, 2] - 0.07).abs().max()) < 0.003


def test_invalid_coverage_is_refused() -> None:
    with pytest.raises(ConfigError, match="coverage"):
        make_task_env("push_t", 1, coverage=1.5)
