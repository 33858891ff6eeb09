"""Outputs of `robo-rl mission`: a table, results.json, and every mission drawn from above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from robo_rl.core.files.durable import write_json
from robo_rl.eval import text
from robo_rl.eval.flight.mission_plots import MissionView, write_mission_plots
from robo_rl.flight.fly.table import LABELS
from robo_rl.runs.run_dir import RunDir

if TYPE_CHECKING:
    from robo_rl.flight.mission.flights import MissionFlight, Planned

DRAWN = 4  # scenes of each mission
_DT_S = 0.01


def finish(run: RunDir, planned: Sequence[Planned], flights: Sequence[MissionFlight]) -> int:
    """Print the table, then write results.json and missions.png (the first pilot's flights)."""
    Console(width=140).print(table(flights))
    print("margin: distance to a violation of the formula; satisfied: margin above 0.", flush=True)
    write_json(run.path / "results.json", {"flights": [flight.to_json() for flight in flights]})
    rows = [
        scene_views(one, next(flight for flight in flights if flight.mission is one.scenes.mission))
        for one in planned
    ]
    write_mission_plots(run.path / "missions.png", rows, "Missions, planned (dashed) and flown")
    print(f"Pictures: {run.path / 'missions.png'}   All margins: {run.path / 'results.json'}")
    return 0


def table(flights: Sequence[MissionFlight]) -> Table:
    """One row per mission and pilot."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("mission")
    shown.add_column("pilot")
    for title in ("planned", "satisfied", "95 %", "margin, median", "worst"):
        shown.add_column(title, justify="right")
    for flight in flights:
        known = flight.margin_m[~flight.margin_m.isnan()]
        middle, worst = (
            (f"{100 * value:.0f} cm" for value in (known.median(), known.min())) if len(known) else ("–", "–")
        )
        shown.add_row(
            flight.mission.name,
            LABELS[flight.pilot],
            f"{int((flight.planned_m > 0.0).sum())}/{len(flight.planned_m)}",
            f"{flight.satisfied.k}/{flight.satisfied.n}",
            text.interval(flight.satisfied),
            middle,
            worst,
        )
    return shown


def scene_views(planned: Planned, flight: MissionFlight) -> list[MissionView]:
    """Plot data of the first scenes of a mission."""
    scenes, mission = planned.scenes, planned.scenes.mission
    times_s = torch.arange(len(flight.position_m)) * _DT_S
    path = planned.plans.at(times_s)[0].numpy()
    return [
        MissionView(
            title=mission.name,
            places={name: scenes.places_m[i, :, at].numpy() for i, name in enumerate(mission.places)},
            place_radius_m=mission.place_radius_m,
            rocks=scenes.rocks_m[:, :, at].numpy(),
            rock_radius_m=mission.rock_radius_m,
            arena_m=mission.arena_m,
            planned_m=path[:, :, at],
            flown_m=flight.position_m[:, :, at].numpy(),
            dt_s=_DT_S,
            margin_m=float(flight.margin_m[at]),
        )
        for at in range(min(DRAWN, scenes.places_m.shape[2]))
    ]
