"""Planner of paths that satisfy a formula: random timed sub-goals, then gradient ascent on the smooth margin.

Each scene has several attempts in parallel. Random times select the order of places and the branch of the
formula, which gradients cannot change; gradients find a path between rocks and increase the margin. The
attempt with the best exact margin is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings, setting
from robo_rl.core.shapes import Float
from sim.tasks.stl.formula import Grid
from sim.tasks.stl.ground import Stay, ground
from sim.tasks.stl.scene import Scenes
from sim.tasks.stl.spline import Basis, apply, spline_basis


@dataclass
class PlanConfig:
    """Search effort of the planner, and limits of a path."""

    attempts: int = setting(6, "paths that are optimised per scene", at_least=1)
    draws: int = setting(
        200,
        "sets of timed sub-goals drawn per scene; `attempts` of them, with the lowest speed, are optimised",
        at_least=1,
    )
    iterations: int = setting(200, "largest number of gradient steps", at_least=1)
    most_speed_m_s: float = setting(1.5, "largest speed of a path [m/s]", at_least=0.1)
    most_acceleration_m_s2: float = setting(4.0, "largest acceleration of a path [m/s^2]", at_least=0.1)
    enough_m: float = setting(
        0.2, "smooth margin above which a path is not optimised further [m]", at_least=0.0
    )
    dt_s: float = setting(0.1, "time between samples of the formula while planning [s]", at_least=0.01)


_KNOT_S = 0.5  # time between control points; a Crazyflie could not follow quicker turns
_LR_M = 0.03
_SHARPNESS = (25.0, 60.0)  # 1/m, from the first iteration to the last
_EFFORT = (
    0.02  # metres of margin that a mean squared acceleration of 1 (m/s^2)^2 costs, against needless turns
)
_EXCESS = 0.05  # tolerated excess over the limits of speed and acceleration, as a fraction


@dataclass(frozen=True, slots=True)
class Plans:
    """One path for each of n scenes, given by c control points."""

    points_m: Float[Tensor, "c 3 n"]
    margin_m: Float[Tensor, " n"]  # exact, on the planning grid
    duration_s: float

    def at(self, times_s: Float[Tensor, " t"]) -> tuple[Tensor, Tensor, Tensor]:
        """Position [m], velocity [m/s] and acceleration [m/s^2], each (t, 3, n); at rest after the end."""
        basis = spline_basis(self.duration_s, len(self.points_m) - 3, times_s)
        return tuple(apply(matrix, self.points_m) for matrix in basis)  # type: ignore[return-value]


def plan(
    scenes: Scenes,
    config: PlanConfig,
    generator: torch.Generator,
    on_iteration: Callable[[], object] = lambda: None,
) -> Plans:
    """The best path found for each scene; it satisfies the formula where its margin is positive.

    Raises ConfigError for settings out of range and for missions longer than 120 s.
    """
    check_settings(config)
    mission = scenes.mission
    duration_s, num = mission.duration_s, scenes.places_m.shape[2]
    if duration_s > 120.0:
        raise ConfigError(
            f"Mission '{mission.name}' lasts {duration_s:g} s; paths are planned for up to 120 s. Shorten "
            "the times of its formula."
        )
    knots = max(4, round(duration_s / _KNOT_S))
    times_s = torch.arange(mission.formula.horizon_steps(Grid(config.dt_s)) + 1) * config.dt_s
    basis = spline_basis(duration_s, knots, times_s)
    start = _first_points(scenes, config, knots, generator)
    tried = scenes.repeat(config.attempts)
    points = _improve(start, tried, basis, config, on_iteration)
    with torch.no_grad():
        margin = _margin(points, tried, basis, Grid(config.dt_s)).view(num, config.attempts)
        too_fast = _excess(points, basis, config).view(num, config.attempts) > _EXCESS
        best = torch.where(too_fast, margin - 1.0, margin).argmax(1)
    chosen = torch.arange(num) * config.attempts + best
    return Plans(points[:, :, chosen].clone(), margin[torch.arange(num), best], duration_s)


def _improve(
    start: Float[Tensor, "c 3 m"],
    scenes: Scenes,
    basis: Basis,
    config: PlanConfig,
    on_iteration: Callable[[], object],
) -> Float[Tensor, "c 3 m"]:
    """Control points after Adam on the smooth margin minus excess speed, acceleration and effort.

    The first three points are fixed, so that the flight begins at rest.
    """
    held, free = start[:3], start[3:].clone().requires_grad_()
    optimizer = torch.optim.Adam([free], lr=_LR_M)
    for done in np.linspace(0.0, 1.0, config.iterations):
        sharpness = _SHARPNESS[0] ** (1.0 - done) * _SHARPNESS[1] ** done
        points = torch.cat([held, free])
        margin = _margin(points, scenes, basis, Grid(config.dt_s, float(sharpness)))
        excess = _excess(points, basis, config)
        good = (margin >= config.enough_m) & (excess <= _EXCESS)
        if good.view(-1, config.attempts).any(1).all():
            break
        effort = apply(basis.acceleration, points).square().sum(1).mean(0)
        loss = 2.0 * excess + _EFFORT * effort - margin.clamp(max=config.enough_m)
        optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()
        optimizer.step()
        on_iteration()
    return torch.cat([held, free.detach()])


def _margin(points: Float[Tensor, "c 3 m"], scenes: Scenes, basis: Basis, grid: Grid) -> Float[Tensor, " m"]:
    """Margin [m] of the formula at the beginning of each path."""
    margin: Tensor = scenes.mission.formula.margin(scenes.margins(apply(basis.position, points)), grid)[0]
    return margin


def _excess(points: Float[Tensor, "c 3 m"], basis: Basis, config: PlanConfig) -> Float[Tensor, " m"]:
    """Largest excess of speed plus that of acceleration over their limits, as fractions of the limits."""
    speed = apply(basis.velocity, points).norm(dim=1) / config.most_speed_m_s
    acceleration = apply(basis.acceleration, points).norm(dim=1) / config.most_acceleration_m_s2
    excess: Tensor = (speed - 1.0).clamp(min=0.0).amax(0) + (acceleration - 1.0).clamp(min=0.0).amax(0)
    return excess


def _first_points(
    scenes: Scenes, config: PlanConfig, knots: int, generator: torch.Generator
) -> Float[Tensor, "c 3 m"]:
    """Control points on straight lines between sub-goals, per scene the `attempts` slowest of `draws`."""
    mission = scenes.mission
    rng = np.random.default_rng(int(torch.randint(2**31, (1,), generator=generator)))
    columns = []
    at_s = (np.arange(knots + 3) - 1.0) * (mission.duration_s / knots)  # time at which a point weighs most
    for scene in range(scenes.places_m.shape[2]):
        place = {name: scenes.places_m[i, :, scene].numpy() for i, name in enumerate(mission.places)}
        drawn = [ground(mission.formula, mission.places, rng) for _ in range(config.draws)]
        drawn.sort(key=lambda stays: _needed_speed(stays, place))
        columns += [_through(stays, place, at_s) for stays in drawn[: config.attempts]]
        columns += [columns[-1]] * (config.attempts - min(config.attempts, len(drawn)))
    points = torch.from_numpy(np.stack(columns, axis=2)).float()
    points += 0.05 * torch.randn(points.shape, generator=generator)  # makes all attempts different
    points[:3] = 0.0
    return points


def _needed_speed(stays: list[Stay], place: dict[str, np.ndarray]) -> float:
    """Largest mean speed [m/s] between stays in the order of their times; huge for overlapping stays."""
    worst, time_s, at = 0.0, 0.0, np.zeros(3)
    for stay in sorted(stays):
        distance = float(np.linalg.norm(place[stay.place] - at))
        worst = max(worst, distance / max(stay.start_s - time_s, 1e-2))
        time_s, at = max(time_s, stay.end_s), place[stay.place]
    return worst


def _through(stays: list[Stay], place: dict[str, np.ndarray], at_s: np.ndarray) -> np.ndarray:
    """Control points (c, 3): from rest at the start through every stay, and at rest at the last."""
    times, points = [0.0], [np.zeros(3)]
    for stay in sorted(stays):
        for time_s in (stay.start_s, stay.end_s):
            times.append(max(time_s, times[-1] + 1e-3))
            points.append(place[stay.place])
    return np.stack([np.interp(at_s, times, [point[axis] for point in points]) for axis in range(3)], axis=1)
