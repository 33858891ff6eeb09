"""Plot of missions: each scene from above, the planned path, and the flown path coloured by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.eval.plots import GRID, INK, MUTED, PALETTE, STYLE

_TIMES = "viridis"
_HEADING: Any = {"loc": "left", "fontsize": 9}


@dataclass(frozen=True)
class MissionView:
    """One scene and the flight in it. Positions in metres."""

    title: str
    places: dict[str, Float[ndarray, " 3"]]
    place_radius_m: float
    rocks: Float[ndarray, "r 2"]
    rock_radius_m: float
    arena_m: tuple[float, float, float]
    planned_m: Float[ndarray, "t 3"]
    flown_m: Float[ndarray, "t 3"]
    dt_s: float
    margin_m: float  # of the flight; NaN when it ended early


def write_mission_plots(path: Path, rows: Sequence[Sequence[MissionView]], title: str) -> Path:
    """Draw a row per mission and a column per scene. Raises ConfigError without a mission."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        mission_figure(rows, title).savefig(path, dpi=150)
    return path


def mission_figure(rows: Sequence[Sequence[MissionView]], title: str) -> Figure:
    """Figure of `write_mission_plots`; axes in metres. Raises ConfigError without a mission."""
    if not rows or not rows[0]:
        raise ConfigError("There is no mission to draw. Fly at least one.")
    columns = max(len(row) for row in rows)
    scale = Normalize(0.0, max(len(view.flown_m) * view.dt_s for row in rows for view in row))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.1 * columns + 1.0, 3.3 * len(rows) + 0.6), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for axes_row, row in zip(grid, rows, strict=True):
            for axes in axes_row[len(row) :]:
                axes.set_axis_off()
            for column, (axes, view) in enumerate(zip(axes_row, row, strict=False)):
                lines = _draw(axes, view, scale)
                axes.set_xlabel("x, m")
                axes.set_ylabel("y, m" if column == 0 else "")
        bar = figure.colorbar(lines, ax=grid, shrink=0.5, pad=0.02)
        bar.set_label("time, s")
        bar.outline.set_visible(False)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=13)
    return figure


def _draw(axes: Axes, view: MissionView, scale: Normalize) -> LineCollection:
    wide, deep, _ = view.arena_m
    axes.add_patch(Rectangle((-wide, -deep), 2 * wide, 2 * deep, fill=False, edgecolor=GRID, linewidth=2))
    for at in view.rocks:
        axes.add_patch(Circle((at[0], at[1]), view.rock_radius_m, color=MUTED, linewidth=0))
    for colour, (name, at) in zip(PALETTE * 2, view.places.items(), strict=False):
        axes.add_patch(Circle((at[0], at[1]), view.place_radius_m, color=colour, alpha=0.2, linewidth=0))
        axes.text(at[0], at[1], name, color=colour, ha="center", va="center", weight="bold", fontsize=9)
    axes.plot(*view.planned_m[:, :2].T, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    points = view.flown_m[:, None, :2]
    pieces = list(np.concatenate([points[:-1], points[1:]], axis=1))
    lines = LineCollection(pieces, cmap=_TIMES, norm=scale, linewidths=2)
    lines.set_array(np.arange(len(points) - 1) * view.dt_s)
    axes.add_collection(lines)
    axes.plot(*view.flown_m[0, :2], "o", color=INK, markersize=4)
    good = view.margin_m > 0.0
    verdict = "the flight ended early" if np.isnan(view.margin_m) else f"margin {100 * view.margin_m:.0f} cm"
    axes.set_title(f"{view.title}: {verdict}", color=INK if good else PALETTE[1], **_HEADING)
    axes.set(xlim=(-1.05 * wide, 1.05 * wide), ylim=(-1.05 * deep, 1.05 * deep), aspect="equal")
    axes.tick_params(labelsize=8)
    axes.grid(visible=False)
    return lines
