"""Plots of swarms from above: cylinders, paths, starts and goals, one panel per world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from robo_rl.core.errors import ConfigError
from robo_rl.eval.flight.swarm_log import SwarmLog
from robo_rl.eval.plots import GRID, INK, MUTED, PALETTE, STYLE

_COLUMNS = 3
_WARNING = "#B91C1C"


def write_swarm_plot(path: Path, logs: Sequence[SwarmLog], title: str) -> Path:
    """Draw every world to `path` (PNG, SVG or PDF by its suffix). Raises ConfigError without a world."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        swarm_figure(logs, title).savefig(path, dpi=150)
    return path


def swarm_figure(logs: Sequence[SwarmLog], title: str) -> Figure:
    """Figure with a panel per world, in metres. Raises ConfigError without a world."""
    if not logs:
        raise ConfigError("There is no swarm to draw. Record at least one SwarmLog.")
    columns = min(_COLUMNS, len(logs))
    rows = -(-len(logs) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * columns, 4.45 * rows + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        for i, log in enumerate(logs):
            axes = figure.add_subplot(rows, columns, i + 1)
            _draw(axes, log)
            axes.set_xlabel("x, m" if i + columns >= len(logs) else "")
            axes.set_ylabel("y, m" if i % columns == 0 else "")
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=13)
    return figure


def _draw(axes: Axes, log: SwarmLog) -> None:
    for x, y in log.cylinders_m:
        axes.add_patch(Circle((x, y), log.cylinder_radius_m, facecolor=GRID, edgecolor=MUTED, linewidth=0.6))
    for i, failed in enumerate(log.failed):
        colour = PALETTE[i % len(PALETTE)]
        way, goal = log.position_m[:, i, :2], log.goal_m[:, i, :2]
        if np.ptp(goal, axis=0).max() > 1e-6:
            axes.plot(*goal.T, color=MUTED, linewidth=0.7, linestyle=":", zorder=1)
        axes.plot(*way.T, color=colour, linewidth=1.1, alpha=0.9, zorder=2)
        axes.plot(*way[0], marker="o", markersize=3.5, color="white", markeredgecolor=colour, zorder=3)
        axes.plot(*goal[-1], marker="x", markersize=5, color=INK, markeredgewidth=1.0, zorder=4)
        if failed:
            axes.plot(*way[-1], marker="s", markersize=8, fillstyle="none", color=_WARNING, zorder=5)
    wide, deep, _ = log.room_m
    axes.set(xlim=(-wide / 2, wide / 2), ylim=(-deep / 2, deep / 2), aspect="equal")
    for side in axes.spines.values():
        side.set(visible=True, color=MUTED)
    axes.grid(visible=False)
    axes.tick_params(labelsize=8)
    good = len(log.failed) - int(log.failed.sum())
    alone = "reached" if good else "not reached"
    result = alone if len(log.failed) == 1 else f"{good} of {len(log.failed)} reached"
    axes.set_title(f"{log.label}: {result}", loc="left", fontsize=10)
