"""Missions and their random scenes: places to visit, rocks to avoid, an arena to stay in.

Positions are relative to the start of the flight [m, world axes]; the last axis of a tensor counts scenes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Float
from robo_rl.core.text.nearest import nearest
from sim.tasks.stl.formula import Formula, Margins, atoms
from sim.tasks.stl.parse import parse

FOLDER = Path(__file__).parents[1] / "missions"
ARENA, ROCKS = "arena", "rocks"
_TRIES = 2000  # batches of random scenes before the arena counts as too small


@dataclass(frozen=True, slots=True)
class Mission:
    """A formula over names of places, `arena` (a box around the start) and `rocks` (upright cylinders)."""

    name: str
    text: str  # the formula in words; in a file by default the formula
    formula: Formula
    places: tuple[str, ...]
    rocks: int = 0
    place_radius_m: float = 0.4
    rock_radius_m: float = 0.25
    arena_m: tuple[float, float, float] = (2.0, 2.0, 0.8)  # half sizes
    gap_m: float = 0.3  # least distance between the edges of places, rocks and the start

    @property
    def duration_s(self) -> float:
        """Length of a flight on which the formula's truth depends."""
        return self.formula.horizon_s


@dataclass(frozen=True, slots=True)
class Scenes:
    """n random scenes of one mission."""

    mission: Mission
    places_m: Float[Tensor, "p 3 n"]
    rocks_m: Float[Tensor, "r 2 n"]

    def margins(self, position_m: Float[Tensor, "t 3 n"]) -> Margins:
        """Distance [m] inside each place, inside the nearest rock, and inside the arena; negative outside."""
        mission, at = self.mission, position_m.unsqueeze(1)
        inside = mission.place_radius_m - (at - self.places_m).norm(dim=2)
        half = position_m.new_tensor(mission.arena_m)[:, None]
        named = dict(zip(mission.places, inside.unbind(1), strict=True))
        named[ARENA] = (half - position_m.abs()).amin(1)
        if mission.rocks:
            named[ROCKS] = (mission.rock_radius_m - (at[:, :, :2] - self.rocks_m).norm(dim=2)).amax(1)
        return named

    def repeat(self, times: int) -> Scenes:
        """Every scene repeated `times` times, next to each other."""
        places, rocks = (x.repeat_interleave(times, 2) for x in (self.places_m, self.rocks_m))
        return Scenes(self.mission, places, rocks)


def list_missions() -> list[str]:
    """Names of the missions that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_mission(name: str) -> Mission:
    """A mission by name, or from a YAML file. Raises UnknownNameError, ConfigError for an invalid file."""
    own = name.endswith((".yaml", ".yml"))
    path = Path(name) if own else FOLDER / f"{name}.yaml"
    if own and not path.is_file():
        known = ", ".join(list_missions())
        raise ConfigError(f"Mission file {path} does not exist. Check the path, or choose: {known}.")
    if not path.exists():
        raise UnknownNameError("mission", name, list_missions())
    try:
        data = yaml.safe_load(path.read_text())
        _check_keys(data)
        given = {"text": data["formula"]} | {key: _plain(value) for key, value in data.items()}
        mission = Mission(name=path.stem, **given | {"formula": parse(data["formula"])})
    except (TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path.name} does not describe a mission: {error}. Compare with sim/tasks/missions/reach.yaml."
        ) from error
    return check_mission(mission)


def check_mission(mission: Mission) -> Mission:
    """The mission itself. Raises ConfigError for a formula with unknown names or without a duration."""
    known = {*mission.places, ARENA} | ({ROCKS} if mission.rocks else set())
    if unknown := atoms(mission.formula) - known:
        raise ConfigError(
            f"Mission '{mission.name}' names {', '.join(sorted(unknown))}, not listed in its places. Known: "
            f"{', '.join(sorted(known))}. Add it to places, or give rocks a number."
        )
    if not mission.duration_s > 0.0:
        raise ConfigError(
            f"Mission '{mission.name}' takes no time. Use F[s,e], G[s,e] or U[s,e] in its formula."
        )
    return mission


def draw_scenes(mission: Mission, num: int, generator: torch.Generator) -> Scenes:
    """Random scenes with places, rocks and the start `gap_m` apart. Raises ConfigError without room."""
    count = len(mission.places) + mission.rocks
    radius = torch.tensor(
        [mission.place_radius_m] * len(mission.places) + [mission.rock_radius_m] * mission.rocks
    )
    half = torch.tensor(mission.arena_m)
    apart = radius[:, None] + radius[None, :] + mission.gap_m
    apart.fill_diagonal_(0.0)
    found: list[Tensor] = []
    for _ in range(_TRIES):
        at = (2.0 * torch.rand(num, count, 3, generator=generator) - 1.0) * (half - radius.max()).clamp(
            min=0.0
        )
        flat = at[:, :, :2]
        free = (torch.cdist(flat, flat) >= apart).all(2).all(1) & (
            flat.norm(dim=2) >= radius + mission.gap_m
        ).all(1)
        found.extend(at[free])
        if len(found) >= num:
            chosen = torch.stack(found[:num], dim=2)
            return Scenes(mission, chosen[: len(mission.places)], chosen[len(mission.places) :, :2])
    raise ConfigError(
        f"Mission '{mission.name}' has no room for {len(mission.places)} places and {mission.rocks} rocks in "
        f"an arena of {mission.arena_m} m. Make the arena larger or the gap smaller."
    )


def _check_keys(data: Any) -> None:
    """Raise ValueError for what is no mapping, for an unknown key and for missing ones."""
    if not isinstance(data, dict):
        raise ValueError(f"it holds {type(data).__name__}, expected 'name: value' lines")
    known = [item.name for item in fields(Mission) if item.name != "name"]
    for key in data:
        if key not in known:
            close = nearest(str(key), known, 1)
            meant = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
            raise ValueError(f"it has no '{key}'; {meant}")
    if missing := [key for key in ("formula", "places") if key not in data]:
        raise ValueError(f"it lacks {', '.join(missing)}")


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
