"""Missions: scenes with free space, splines with right derivatives, sampled times, plans that satisfy their
formula.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.tasks.stl.formula import Grid
from sim.tasks.stl.ground import ground
from sim.tasks.stl.parse import parse
from sim.tasks.stl.plan import PlanConfig, plan
from sim.tasks.stl.scene import Mission, draw_scenes, list_missions, load_mission
from sim.tasks.stl.spline import apply, spline_basis


@pytest.mark.parametrize("name", list_missions())
def test_scenes_keep_the_gap(name: str) -> None:
    """Places, rocks and the start are apart by the gap, inside the arena; the start satisfies the rules."""
    mission = load_mission(name)
    scenes = draw_scenes(mission, 20, torch.Generator().manual_seed(0))
    assert (scenes.places_m.abs() <= torch.tensor(mission.arena_m)[None, :, None]).all()
    margins = scenes.margins(torch.zeros(1, 3, 20))
    assert margins["arena"].min() > 0.0
    for place in mission.places:
        assert (margins[place] <= -mission.gap_m + 1e-6).all()
    if mission.rocks:
        assert (margins["rocks"] <= -mission.gap_m + 1e-6).all()
        away = (scenes.places_m[:, None, :2] - scenes.rocks_m[None]).norm(dim=2)
        assert away.min() >= mission.place_radius_m + mission.rock_radius_m + mission.gap_m - 1e-6


def test_spline_derivatives_and_end() -> None:
    """Slopes agree with differences; control points on a line at even steps give even motion; the end is
    held.
    """
    times = torch.linspace(0.0, 3.0, 301, dtype=torch.float64).float()
    basis = spline_basis(3.0, 6, times)
    points = torch.randn(9, 3, 2, generator=torch.Generator().manual_seed(0))
    position, velocity = apply(basis.position, points), apply(basis.velocity, points)
    torch.testing.assert_close((position[2:] - position[:-2]) / 0.02, velocity[1:-1], atol=2e-2, rtol=1e-2)
    slope = (velocity[2:] - velocity[:-2]) / 0.02
    torch.testing.assert_close(slope, apply(basis.acceleration, points)[1:-1], atol=0.3, rtol=5e-2)
    line = torch.arange(9.0)[:, None, None].expand(9, 3, 1)
    torch.testing.assert_close(apply(basis.velocity, line), torch.full((301, 3, 1), 2.0), atol=1e-4, rtol=0.0)
    late = spline_basis(3.0, 6, torch.tensor([3.0, 4.0]))
    assert apply(late.position, points)[0].equal(apply(late.position, points)[1])
    assert (apply(late.velocity, points)[1] == 0.0).all()


def test_grounding_keeps_to_the_windows() -> None:
    """Every draw lies within what the formula allows: nested windows add up, and gaps of a patrol stay
    short.
    """
    rng = np.random.default_rng(0)
    for _ in range(200):
        first, second = ground(parse("F[1,5] (a & F[0,4] b) & G[0,9] !rocks"), ["a", "b"], rng)
        assert 1.0 <= first.start_s <= 5.0
        assert first.start_s <= second.start_s <= first.start_s + 4.0
        (stay,) = ground(parse("F[2,3] G[0,2] a"), ["a"], rng)
        assert 2.0 <= stay.start_s <= 3.0
        assert stay.end_s - stay.start_s == pytest.approx(2.0)
        visits = [stay.start_s for stay in ground(parse("G[0,8] F[0,7] a"), ["a"], rng)]
        assert visits[0] <= 7.0
        assert visits[-1] >= 8.0
        assert max(np.diff([0.0, *visits])) <= 7.0
        (either,) = ground(parse("F[0,1] (a | b)"), ["a", "b"], rng)
        assert either.place in "ab"
        assert ground(parse("(!door U[0,7] key)"), ["door", "key"], rng)[0].place == "key"


def test_plans_satisfy_their_formula_and_their_limits() -> None:
    """Reach past four rocks: every scene is solved, and the exact margin on a ten times finer grid agrees."""
    mission = load_mission("avoid")
    scenes = draw_scenes(mission, 8, torch.Generator().manual_seed(1))
    config = PlanConfig(attempts=3, iterations=120)
    plans = plan(scenes, config, torch.Generator().manual_seed(2))
    assert (plans.margin_m > 0.05).all()
    times = torch.arange(801) * 0.01
    position, velocity, acceleration = plans.at(times)
    fine = mission.formula.margin(scenes.margins(position), Grid(0.01))[0]
    assert (fine > 0.0).all()
    torch.testing.assert_close(fine, plans.margin_m, atol=0.05, rtol=0.0)
    assert velocity.norm(dim=1).max() <= 1.1 * config.most_speed_m_s
    assert acceleration.norm(dim=1).max() <= 1.1 * config.most_acceleration_m_s2
    assert position[0].abs().max() == 0.0
    assert velocity[0].abs().max() == 0.0


def test_impossible_missions_are_found_out() -> None:
    """Two metres in a tenth of a second: the margin says no, and by how much."""
    mission = replace(load_mission("reach"), formula=parse("F[0,0.2] a & G[0,1] arena"))
    scenes = draw_scenes(mission, 4, torch.Generator().manual_seed(0))
    assert (plan(scenes, PlanConfig(attempts=1, iterations=20), torch.Generator()).margin_m < 0.0).all()


def test_times_between_samples_are_planned() -> None:
    """Twice 1.75 s on a grid of 0.1 s is one step longer than 3.5 s."""
    mission = replace(load_mission("order"), formula=parse("F[0,1.75] (a & F[0,1.75] b) & G[0,3.5] arena"))
    scenes = draw_scenes(mission, 2, torch.Generator().manual_seed(0))
    plans = plan(scenes, PlanConfig(attempts=1, iterations=1, draws=2), torch.Generator())
    assert plans.margin_m.isfinite().all()


def test_mission_file_needs_a_formula_and_places_only(tmp_path: Path) -> None:
    """The page of missions names every key with its default."""
    (tmp_path / "mine.yaml").write_text("formula: F[0,6] a\nplaces: [a]\n")
    assert load_mission(str(tmp_path / "mine.yaml")).text == "F[0,6] a"
    page = (Path(__file__).parents[4] / "docs" / "missions.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| (?:needed|the formula|[\d.\[])", page, re.MULTILINE)) == {
        item.name for item in fields(Mission) if item.name != "name"
    }


def test_invalid_missions_are_refused(tmp_path: Path) -> None:
    """Unknown names, missing places, no free space, invalid YAML."""
    with pytest.raises(UnknownNameError, match="patrol"):
        load_mission("patroll")
    (tmp_path / "mine.yaml").write_text("text: x\nformula: F[0,6] b\nplaces: [a]\n")
    with pytest.raises(ConfigError, match=r"names b, not listed in its places\. Known: a, arena"):
        load_mission(str(tmp_path / "mine.yaml"))
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(ConfigError, match="does not describe a mission"):
        load_mission(str(tmp_path / "list.yaml"))
    for keys, words in (
        ("rock: 3\nformula: F[0,6] a\nplaces: [a]", r"it has no 'rock'; did you mean 'rocks'\?"),
        ("text: x\nplaces: [a]", "it lacks formula"),
        ("", "it holds NoneType"),
    ):
        (tmp_path / "keys.yaml").write_text(keys)
        with pytest.raises(ConfigError, match=f"does not describe a mission: {words}"):
            load_mission(str(tmp_path / "keys.yaml"))
    crowded = replace(load_mission("avoid"), rocks=40)
    with pytest.raises(ConfigError, match="no room for 1 places and 40 rocks"):
        draw_scenes(crowded, 1, torch.Generator())
    long = draw_scenes(replace(load_mission("reach"), formula=parse("F[0,500] a")), 1, torch.Generator())
    with pytest.raises(ConfigError, match="up to 120 s"):
        plan(long, PlanConfig(), torch.Generator())
