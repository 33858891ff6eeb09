"""Plot of recorded flights: position error, tilt and motor commands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.eval.flight.flight_log import ROTORS, FlightLog
from robo_rl.eval.plots import MUTED, PALETTE, STYLE, spread_labels

SMALLEST_M = 1e-3  # end of the logarithmic axis: below the accuracy of motion capture
# None is a colour of PALETTE, which stands for the pilots.
ROTOR_COLOURS = ("#27272a", "#7c3aed", "#a16207", "#a1a1aa")
_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")  # 0, 2.5, 5 without trailing zeros
_HEADING: Any = {"loc": "left", "fontsize": 10}
_BAND = (10, 50, 90)  # percentiles
_WIDE = 3  # number of panels side by side with room for long titles
_LOWEST = 0.13  # lower labels would overlap the numbers of the time axis


def write_flight_plots(path: Path, logs: Sequence[FlightLog], title: str) -> Path:
    """Draw position error, tilt and one drone's motor commands to `path` (PNG, SVG or PDF by its suffix).

    Error and tilt: median over flying drones and the band from the 10th to the 90th percentile. Raises
    ConfigError without a log.
    """
    if not logs:
        raise ConfigError("There is no flight to draw. Record at least one FlightLog.")
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = [colour for colour, _ in zip(cycle(PALETTE), logs, strict=False)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 7.6), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(3, len(logs), height_ratios=(1.25, 1.0, 1.0))
        _draw_error(figure.add_subplot(grid[0, :]), logs, colours)
        _draw_tilt(figure.add_subplot(grid[1, :]), logs, colours)
        drone = _median_drone(logs[0])
        for i, (log, colour) in enumerate(zip(logs, colours, strict=True)):
            axes = figure.add_subplot(grid[2, i])
            _draw_motors(axes, log, min(drone, log.num_drones - 1), labelled=i == len(logs) - 1)
            if len(logs) > 1:  # above the panel: motor curves fill all corners
                name = log.label if len(logs) <= _WIDE else log.label.replace(", ", "\n")
                axes.set_title(name, **_HEADING, color=colour, weight="bold")
                axes.set_ylabel(f"motors of drone {drone}" if i == 0 else "")
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=13)
        figure.savefig(path, dpi=200)
    return path


def spread(values: Float[ndarray, "t n"]) -> Float[ndarray, "3 t"]:
    """10th, 50th and 90th percentile over flying drones; NaN if none flies."""
    some = np.isfinite(values).any(axis=1)
    out = np.full((len(_BAND), len(values)), np.nan)
    if some.any():
        out[:, some] = np.nanpercentile(values[some], _BAND, axis=1)
    return out


def _median_drone(log: FlightLog) -> int:
    """Drone with the median initial distance to the goal, among those that fly to the end if there are
    any.
    """
    stay = log.flying()[-1]
    away_m = np.where(stay | ~stay.any(), log.error_m()[0], np.nan)
    return int(np.argsort(away_m)[np.isfinite(away_m).sum() // 2])  # NaN is sorted to the end


def _draw_error(axes: Axes, logs: Sequence[FlightLog], colours: Sequence[str]) -> None:
    _draw_bands(axes, [np.maximum(log.error_m(), SMALLEST_M) for log in logs], logs, colours)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda metres, _: _length(metres)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title("position error: median and 10–90 % of the drones that still fly", **_HEADING)
    finals = [_last(log.error_m()) for log in logs]
    low, high = np.log10(axes.get_ylim())
    shares = [float((np.log10(max(final, SMALLEST_M)) - low) / (high - low)) for final in finals]
    heights = spread_labels(shares, gap=0.2, top=0.95, bottom=_LOWEST)
    for log, final, colour, height in zip(logs, finals, colours, heights, strict=True):
        _label(axes, f"{log.label}  {_length(final)}", colour, height, bold=True)
        ended = int((~log.flying()[-1]).sum())
        note = f"{ended} of {log.num_drones} ended early" if ended else f"all {log.num_drones} fly"
        _label(axes, f"median at {_end_s(log):g} s; {note}", MUTED, height - 0.09)


def _draw_tilt(axes: Axes, logs: Sequence[FlightLog], colours: Sequence[str]) -> None:
    _draw_bands(axes, [log.tilt_deg() for log in logs], logs, colours)
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda degrees, _: f"{degrees:g}°"))
    axes.set(xlabel="time, s")
    axes.set_title("tilt", **_HEADING)


def _draw_motors(axes: Axes, log: FlightLog, drone: int, labelled: bool) -> None:
    for i, (rotor, shade) in enumerate(zip(ROTORS, ROTOR_COLOURS, strict=True)):
        axes.plot(_time_s(log), log.command[:, drone, i], color=shade, linewidth=0.9)
        if labelled:
            _label(axes, rotor, shade, 0.85 - 0.2 * i)
    axes.set(xlim=(0.0, _end_s(log)), ylim=(0.0, 1.03), xlabel="time, s")
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.set_title(f"motors of drone {drone}", **_HEADING)


def _draw_bands(
    axes: Axes, values: Sequence[ndarray], logs: Sequence[FlightLog], colours: Sequence[str]
) -> None:
    for log, rows, colour in zip(logs, values, colours, strict=True):
        low, middle, high = spread(rows)
        axes.fill_between(_time_s(log), low, high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(_time_s(log), middle, color=colour, linewidth=2)
    axes.set_xlim(0.0, max(map(_end_s, logs)))
    axes.xaxis.set_major_formatter(_PLAIN)


def _label(axes: Axes, text: str, colour: str, height: float, bold: bool = False) -> None:
    axes.annotate(
        text,
        (1.0, height),
        xycoords="axes fraction",
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        weight="bold" if bold else "normal",
        annotation_clip=False,
    )


def _last(values: Float[ndarray, "t n"]) -> float:
    """The last finite median."""
    middle = spread(values)[1]
    finite = middle[np.isfinite(middle)]
    return float(finite[-1]) if len(finite) else np.nan


def _length(metres: float) -> str:
    """Length with at most three digits in a suitable unit: 0.004 -> 4 mm."""
    if metres < 0.01:
        return f"{round(1000 * metres, 1):g} mm"
    return f"{round(100 * metres, 1):g} cm" if metres < 1.0 else f"{round(metres, 2):g} m"


def _time_s(log: FlightLog) -> Float[ndarray, " t"]:
    since_start: ndarray = log.time_s - log.time_s[0]
    return since_start


def _end_s(log: FlightLog) -> float:
    """One sample period after the last sample, since each sample holds until the next."""
    return log.duration_s + (log.duration_s / (len(log.time_s) - 1) if len(log.time_s) > 1 else 1e-3)
