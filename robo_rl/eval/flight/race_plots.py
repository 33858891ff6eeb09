"""Plot of a race: the track with its gates and the flown paths, coloured by speed, from above and from the
side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.eval.flight.flight_log import FlightLog
from robo_rl.eval.flight.gates import GateFrame
from robo_rl.eval.plots import INK, MUTED, STYLE

_SPEEDS = "viridis_r"  # dark is fast: light lines are hard to see on white
_VIEWS = ((0, 1, "y, m"), (0, 2, "z, m"))  # from above, from the side
_HEADING: Any = {"loc": "left", "fontsize": 10}


def write_race_plots(
    path: Path, logs: Sequence[FlightLog], gates: Sequence[GateFrame], title: str, drones: int = 3
) -> Path:
    """Draw the first drones of every log around the gates to `path`: one column per log, one speed scale for
    all.

    Raises ConfigError without a log.
    """
    if not logs:
        raise ConfigError("There is no flight to draw. Record at least one FlightLog.")
    path.parent.mkdir(parents=True, exist_ok=True)
    fastest = max(float(np.nanmax(_speed(log)[:, :drones])) for log in logs)
    scale = Normalize(0.0, np.ceil(fastest * 2.0) / 2.0)
    low, high = _bounds(logs, gates, drones)
    heights = [high[up] - low[up] for _, up, _ in _VIEWS]
    width = 4.2 * len(logs) + 1.0
    with mpl.rc_context(STYLE):
        figure = Figure(
            figsize=(width, 1.3 + 4.2 * sum(heights) / (high[0] - low[0]) + 1.0), layout="constrained"
        )
        FigureCanvasAgg(figure)
        grid = figure.subplots(
            len(_VIEWS), len(logs), squeeze=False, height_ratios=heights, sharex="all", sharey="row"
        )
        for column, log in enumerate(logs):
            for row, (across, up, label) in enumerate(_VIEWS):
                axes = grid[row][column]
                lines = _draw(axes, log, gates, across, up, scale, drones)
                axes.set(xlim=(low[across], high[across]), ylim=(low[up], high[up]), aspect="equal")
                axes.set_ylabel(label if column == 0 else "")
                axes.set_xlabel("x, m" if row == len(_VIEWS) - 1 else "")
                axes.grid(visible=False)
            grid[0][column].set_title(f"{log.label}, from above", **_HEADING)
            grid[1][column].set_title("from the side", **_HEADING)
        bar = figure.colorbar(lines, ax=grid, shrink=0.6, pad=0.02)
        bar.set_label("speed, m/s")
        bar.outline.set_visible(False)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=13)
        figure.savefig(path, dpi=200)
    return path


def _draw(
    axes: Axes,
    log: FlightLog,
    gates: Sequence[GateFrame],
    across: int,
    up: int,
    scale: Normalize,
    drones: int,
) -> LineCollection:
    """Draw the gates, numbered in order with their direction, and the paths."""
    lines = LineCollection([])
    for drone in range(min(drones, log.num_drones)):
        places = log.position_m[:, drone][:, [across, up]]
        parts = np.stack([places[:-1], places[1:]], axis=1)
        whole = np.isfinite(parts).all(axis=(1, 2))
        lines = LineCollection(list(parts[whole]), cmap=_SPEEDS, norm=scale, linewidth=1.3, alpha=0.9)
        lines.set_array(_speed(log)[1:, drone][whole])
        axes.add_collection(lines)
        if len(ended := np.flatnonzero(~log.flying()[:, drone])) and ended[0] > 0:
            axes.plot(*places[ended[0] - 1], marker="x", color="#D55E00", markersize=7, markeredgewidth=2)
    for number, gate in enumerate(gates):
        _draw_gate(axes, gate, str(number), across, up)
    return lines


def _draw_gate(axes: Axes, gate: GateFrame, name: str, across: int, up: int) -> None:
    middle, normal = np.asarray(gate.position_m), gate.normal()
    for bar in gate.bars():
        seen = bar[:, [across, up]]
        axes.fill(*seen.T, facecolor=MUTED, edgecolor=INK, linewidth=0.8, alpha=0.75)
    tip = middle + 0.5 * gate.opening_m * normal
    if np.linalg.norm((tip - middle)[[across, up]]) > 0.15 * gate.opening_m:
        arrow = {"arrowstyle": "->", "color": INK, "linewidth": 1.0}
        axes.annotate("", (tip[across], tip[up]), (middle[across], middle[up]), arrowprops=arrow)
    add_columns = middle + (0.6 * gate.outer_m) * np.array([normal[1], -normal[0], 0.0])
    if up == 2:
        add_columns = middle + np.array([0.0, 0.0, 0.62 * gate.outer_m])
    axes.annotate(
        name,
        (add_columns[across], add_columns[up]),
        color=INK,
        weight="bold",
        ha="center",
        va="center",
        fontsize=9,
    )


def _speed(log: FlightLog) -> Float[ndarray, "t n"]:
    return np.asarray(np.linalg.norm(log.velocity_m_s, axis=-1))


def _bounds(
    logs: Sequence[FlightLog], gates: Sequence[GateFrame], drones: int
) -> tuple[Float[ndarray, " 3"], Float[ndarray, " 3"]]:
    """Bounds of everything drawn and of the floor, with a margin."""
    corners = [gate.corners(1.4 * gate.outer_m) for gate in gates]
    points = np.concatenate([*corners, *(log.position_m[:, :drones].reshape(-1, 3) for log in logs)])
    points = points[np.isfinite(points).all(-1)]
    low, high = points.min(0) - 0.1, points.max(0) + 0.1
    return np.array([low[0], low[1], min(low[2], 0.0)]), high
