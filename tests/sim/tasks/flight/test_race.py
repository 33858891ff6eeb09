"""Gates and waypoints: passes, crashes, ends of flights, and permitted settings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.engines.own_file import pinned
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, QUAT, STATE_SIZE, VEL
from sim.flight.flights import Flights
from sim.flight.trial import controller_pilot, fly
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.path import lap_reference
from sim.tasks.flight.protocol import FlightOutcome
from sim.tasks.flight.race import (
    CLOCK,
    CRASHED,
    FIRST,
    PASSED,
    RaceTask,
    check_race,
    craft_radius_m,
    gate_axes,
)
from sim.tasks.flight.track import FOLDER, Gate, check_track, list_tracks, load_track, scaled
from sim.tasks.flight.waypoints import WaypointTask, check_waypoint_speed, fold, random_points

CRAFT = load_craft("cf2x_l2f")
RING = load_track("ring")
TASK = RaceTask(RING, craft_radius_m=0.05)
GATE = torch.tensor([[1.0], [2.0], [1.5], [0.0], [1.0]])  # flown along y


def at(*place: float) -> Tensor:
    return torch.tensor(place).unsqueeze(1)


@pytest.mark.parametrize(
    ("start", "end", "passed", "hit"),
    [
        ((1.0, 1.9, 1.5), (1.0, 2.1, 1.5), True, False),  # through the middle
        ((1.0, 2.1, 1.5), (1.0, 1.9, 1.5), False, False),  # back through the opening: nothing
        ((1.0, 1.8, 1.5), (1.0, 1.9, 1.5), False, False),  # not there yet
        ((1.29, 1.9, 1.5), (1.29, 2.1, 1.5), True, False),  # the opening is 0.35 to a side, the craft 0.05
        ((1.31, 1.9, 1.5), (1.31, 2.1, 1.5), False, True),
        ((1.31, 2.1, 1.5), (1.31, 1.9, 1.5), False, True),  # the frame is hit from behind as well
        (
            (1.0, 1.9, 1.02),
            (1.0, 2.1, 1.02),
            False,
            True,
        ),  # 0.48 below the middle; the frame ends at 0.45 + 0.05
        ((1.0, 1.9, 0.98), (1.0, 2.1, 0.98), False, False),  # below all of it
        ((0.6, 1.9, 1.5), (1.2, 2.1, 1.5), True, False),  # what counts is where the plane is crossed: x = 0.9
    ],
)
def test_passing_missing_and_hitting_a_gate(
    start: tuple[float, ...], end: tuple[float, ...], passed: bool, hit: bool
) -> None:
    """Opening 0.7 m, frame 0.1 m, craft 5 cm from its middle to its rim."""
    through, into = TASK.crossing(GATE, at(*start), at(*end))
    assert (bool(through), bool(into)) == (passed, hit)


def test_gates_count_in_their_order_only() -> None:
    """Through gate 1 before gate 0: nothing. Then 0 and 1, and lap after lap."""
    _, external = TASK.start(CRAFT, torch.full((TASK.start_numbers, 1), 0.5))
    kept = TASK.first(external)

    def through(number: int, kept: Tensor) -> Tensor:
        gate = RING.gates[number]
        normal = torch.tensor([*gate.normal, 0.0]).unsqueeze(1)
        before, after = torch.zeros(STATE_SIZE, 1), torch.zeros(STATE_SIZE, 1)
        before[POS], after[POS] = at(*gate.position_m) - 0.1 * normal, at(*gate.position_m) + 0.1 * normal
        return TASK.advance(before, after, external, kept)

    kept = through(1, kept)
    assert kept[PASSED] == 0
    for number in [*range(7), 0]:
        kept = through(number, kept)
    assert kept[PASSED] == 8
    assert kept[CRASHED] == 0
    assert kept[CLOCK].item() == pytest.approx(9 * TASK.dt_s)


def test_laps_are_timed_from_gate_zero_to_gate_zero() -> None:
    """Gates every 10 steps from step 5 on: laps of 70 steps. Passes after the end do not count."""
    steps = torch.arange(300)
    passed = ((steps - 5) // 10 + 1).clamp(min=0).float()
    kept = torch.zeros(300, 4, 2)
    kept[:, PASSED] = passed.unsqueeze(1)
    left = torch.zeros(300, 2, dtype=torch.bool)
    left[140:, 1] = True
    kept[150:, CRASHED, 1] = 1.0  # out of the room, and then into a gate
    score = TASK.score(FlightOutcome(torch.zeros(300, 3, 2), torch.ones(300, 3, 2), kept, left))
    assert score.success.tolist() == [True, False]
    assert score.facts["hit_a_gate"] == 0.0
    assert score.facts["lap_time_s"] == pytest.approx(0.7)
    assert score.facts["laps_per_flight"] == pytest.approx((4 + 1) / 2)
    assert score.facts["mean_speed_m_s"] == pytest.approx(math.sqrt(3.0))


def test_the_funnel_leads_in_from_the_front() -> None:
    """Beside the gate the remaining way shrinks backwards and sideways; on the axis it is the distance to the
    plane.
    """
    assert TASK.potential((at(-2.0), at(0.0), at(0.0))).item() == pytest.approx(2.0, abs=0.01)
    beside = torch.tensor([0.2], requires_grad=True), torch.tensor([1.0], requires_grad=True), torch.zeros(1)
    TASK.potential(beside).sum().backward()
    along, side = beside[0].grad, beside[1].grad
    assert along is not None
    assert side is not None
    assert along.item() > 0.0
    assert side.item() > 0.0


def test_starts_wait_before_gate_zero_and_train_before_any() -> None:
    """Measured: 0.7 m before gate 0, at rest. Training: every gate can be first, and no start is a crash."""
    unit = torch.rand(TASK.start_numbers, 500, generator=torch.Generator().manual_seed(0))
    state, external = TASK.start(CRAFT, unit)
    along, side, up = gate_axes(TASK.gate(external, TASK.first(external)), state[POS])
    assert (along + 0.7).abs().max() <= 0.11
    assert torch.maximum(side.abs(), up.abs()).max() <= 0.11
    assert state[VEL].abs().max() == 0.0
    training = replace(TASK, start_anywhere=True)
    state, external = training.start(CRAFT, unit)
    assert training.first(external)[FIRST].unique().tolist() == list(range(7))
    assert not RING.room.outside(state[POS]).any()


def test_shifted_gates_stand_elsewhere_in_every_flight_and_the_measured_ones_do_not() -> None:
    """With gate_shift_m = 0.3 each gate is up to 0.3 m off along each axis and observed there, with unchanged
    direction.
    """
    unit = torch.rand(TASK.start_numbers, 400, generator=torch.Generator().manual_seed(0))
    fixed, moved = (task.start(CRAFT, unit)[1] for task in (TASK, replace(TASK, gate_shift_m=0.3)))
    for k, gate in enumerate(TASK.track.gates):
        here = TASK.gate(fixed, TASK.first(fixed), k)
        off = TASK.gate(moved, TASK.first(moved), k) - here
        torch.testing.assert_close(here[0:3], torch.tensor(gate.position_m).unsqueeze(1).expand(3, 400))
        assert off[:3].abs().max() <= 0.3 + 1e-6
        assert (off[:3].std(dim=1) > 0.15).all()
        assert off[3:].abs().max() == 0.0


@pytest.mark.parametrize("name", list_tracks())
def test_every_track_has_a_path_through_its_gates(name: str) -> None:
    """The reference passes all gates in order well inside their openings, and its velocity is its
    derivative.
    """
    task = RaceTask(load_track(name), craft_radius_m(CRAFT))
    path = lap_reference(task.track, 1.0, 0.04, 720, 0.7)
    torch.testing.assert_close((path[0:3, 2:] - path[0:3, :-2]) / 0.08, path[3:6, 1:-1], atol=2e-2, rtol=0.0)
    _, external = task.start(CRAFT, torch.full((task.start_numbers, 1), 0.5))
    kept, before, after = task.first(external), torch.zeros(STATE_SIZE, 1), torch.zeros(STATE_SIZE, 1)
    for step in range(1, path.shape[1]):
        before[POS], after[POS] = path[0:3, step - 1 : step], path[0:3, step : step + 1]
        kept = task.advance(before, after, external, kept)
    assert kept[CRASHED] == 0
    assert kept[PASSED] > 2 * task.num


@pytest.mark.long
def test_a_controller_flies_laps_on_the_path() -> None:
    """PID at 1.8 m/s around the ring: frames, gates, path and clock fit together for one whole lap."""
    task = replace(TASK, baseline_speed_m_s=1.8, laps=1, max_steps=820, force_std=0.0)
    flights = Flights(CRAFT, task, FlightSenses(integral=False), 3, seed=0, gradient=False, eager=True)
    trial = fly(flights, controller_pilot("pid", CRAFT, task.dt_s, 3))
    assert trial.held.all()
    assert trial.facts["hit_a_gate"] == 0.0


def test_observation_does_not_depend_on_the_heading() -> None:
    """The same flight rotated about the vertical by 2 rad, with gates, gives the same observation."""
    unit = torch.rand(TASK.start_numbers, 20, generator=torch.Generator().manual_seed(1))
    state, external = TASK.start(CRAFT, unit)
    flown = Flights(CRAFT, TASK, FlightSenses(noise=False), 20, seed=0, gradient=False, eager=True)
    seen = look(flown, state, external)
    turned, gates = state.clone(), external.clone()
    c, s, half = math.cos(2.0), math.sin(2.0), 1.0
    for rows in (turned[POS], turned[VEL], *(gates[9 + 5 * k : 12 + 5 * k] for k in range(7))):
        rows[0:2] = torch.stack([c * rows[0] - s * rows[1], s * rows[0] + c * rows[1]])
    for k in range(7):
        n = gates[12 + 5 * k : 14 + 5 * k]
        n[:] = torch.stack([c * n[0] - s * n[1], s * n[0] + c * n[1]])
    w, x, y, z = state[QUAT].unbind(0)
    cq, sq = math.cos(half), math.sin(half)
    turned[QUAT] = torch.stack([cq * w - sq * z, cq * x - sq * y, cq * y + sq * x, cq * z + sq * w])
    torch.testing.assert_close(look(flown, turned, gates), seen, atol=1e-5, rtol=0.0)


def look(flights: Flights, state: Tensor, external: Tensor) -> Tensor:
    from sim.flight.flight import first_observation

    return first_observation(state, external, None, flights.command.hover, flights.task, flights.senses)[1]


def test_waypoints_are_reached_in_turn_and_the_last_one_stays() -> None:
    """Placed on each point in turn, the count rises by one; after the last it stays, and so does the goal."""
    task = WaypointTask(count=3)
    _, external = task.start(
        CRAFT, torch.rand(task.start_numbers, 4, generator=torch.Generator().manual_seed(0))
    )
    kept, state = task.first(external), torch.zeros(STATE_SIZE, 4)
    for reached in (1.0, 2.0, 3.0, 3.0):
        state[POS] = task.target(external, kept) + 0.5 * task.radius_m / math.sqrt(3.0)
        assert task.relative(state, external, kept)[POS].norm(dim=0).max() < task.radius_m
        kept = task.advance(state, state, external, kept)
        assert (kept == reached).all()


@given(st.floats(-50.0, 50.0), st.floats(-3.0, 0.0), st.floats(0.1, 4.0))
def test_folding_ends_between_the_bounds(x: float, low: float, span: float) -> None:
    """For any value; points between the limits are not moved."""
    bounds = torch.tensor(low), torch.tensor(low + span)
    folded = fold(torch.tensor(x), *bounds)
    assert low - 1e-4 <= folded <= low + span + 1e-4
    torch.testing.assert_close(fold(folded, *bounds), folded, atol=1e-4, rtol=0.0)


def test_distance_between_waypoints() -> None:
    """In a very large room every step is 0.6 ... 1.6 m, uniform in direction."""
    far = replace(WaypointTask().inner, low_m=(-99.0,) * 3, high_m=(99.0,) * 3)
    task = WaypointTask(inner=far)
    points = random_points(torch.rand(30, 2000), torch.zeros(3, 2000), task).unflatten(0, (10, 3))
    steps = points.diff(dim=0)
    assert 0.6 - 1e-3 <= steps.norm(dim=1).min() <= steps.norm(dim=1).max() <= 1.6 + 1e-3
    assert steps.mean(dim=(0, 2)).abs().max() < 0.03


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        ([Gate((0.0, 0.0, 1.0), 0.0), Gate((0.3, 0.0, 1.0), 0.0)], "Gates 0 and 1 .* overlap"),
        ([Gate((0.0, 0.0, 1.0), 0.0), Gate((0.0, 1.8, 1.0), 0.0)], "Gate 1 .* outside of the box: y"),
        ([Gate((0.0, 0.0, 0.3), 0.0), Gate((1.0, 1.0, 1.0), 0.0)], "Gate 0 .* outside of the box: z"),
        ([Gate((0.0, 0.0, 1.0), 0.0)], "at least 2"),
    ],
)
def test_tracks_that_cannot_stand_are_refused(gates: list[Gate], words: str) -> None:
    """One sentence with the gates, what was found and what would do."""
    with pytest.raises(ConfigError, match=words):
        check_track(replace(RING, gates=tuple(gates)))


def test_unknown_broken_and_too_small_tracks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="ring"):
        load_track("rign")
    with pytest.raises(
        ConfigError, match=r"Track file nowhere.yaml does not exist\. .* choose: ring, splits"
    ):
        load_track("nowhere.yaml")
    (tmp_path / "mine.yaml").write_text("source: own\n")
    with pytest.raises(ConfigError, match="room_m is missing"):
        load_track(str(tmp_path / "mine.yaml"))
    (tmp_path / "mine.yaml").write_text("source: own\ngates: [{position_m: [1, 0, 1]\n")
    with pytest.raises(
        ConfigError, match=r"(?s)mine\.yaml does not describe a track: .*line 2.* Compare with"
    ):
        load_track(str(tmp_path / "mine.yaml"))
    with pytest.raises(ConfigError, match="does not fit"):
        check_race(RaceTask(scaled(RING, 0.1), craft_radius_m(CRAFT)), CRAFT)
    with pytest.raises(ConfigError, match="above 0"):
        load_track("ring", 0.0)


def test_a_track_with_a_checksum_is_the_one_of_the_training(tmp_path: Path) -> None:
    """Whatever the scale; a gate that moved is refused."""
    mine = tmp_path / "mine.yaml"
    mine.write_text((FOLDER / "ring.yaml").read_text())
    name = pinned(str(mine), load_track(str(mine)).numbers)
    assert load_track(name, 2.0) == scaled(load_track(str(mine)), 2.0)
    mine.write_text(mine.read_text().replace("-1.25, 1.00", "-1.20, 1.00"))
    with pytest.raises(ConfigError, match=r"mine\.yaml has changed since the training"):
        load_track(name)


def test_impossible_speeds_are_refused() -> None:
    with pytest.raises(ConfigError, match="no more than"):
        check_race(replace(TASK, most_speed_m_s=50.0), CRAFT)
    with pytest.raises(ConfigError, match="at most"):
        check_waypoint_speed(CRAFT, 50.0, WaypointTask())


def test_a_racer_fits_through_a_scaled_track() -> None:
    racer = load_craft("racer5")
    check_race(RaceTask(load_track("splits", 5.0), craft_radius_m(racer)), racer)
