"""Learning curves: success, or the mean return, over environment steps, with intervals; as SVG for the
report and PNG for other uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter
from matplotlib.transforms import Affine2D, BboxTransformTo, ScaledTranslation, blended_transform_factory

from robo_rl.core.errors import ConfigError
from robo_rl.eval.stats import SuccessRate, rate_over_seeds

# Okabe & Ito 2008: distinct for all common kinds of colour vision. Yellow is left out: it has no contrast on
# white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS, LINES = "os^v", ("-", "-.", ":")  # of the curves after each use of the palette; dashes: training
MOST_TALL = 5  # labels of two lines
TALL_GAP, GAP = 0.13, 0.07  # between labels of two lines and of one, as shares of an axis of the usual height
HEIGHT_IN = 4.2  # of a plot whose labels have room
SAMPLE_PT = 36.0  # width of a line's sample before its label
MOST_BANDS = 5  # curves with intervals: more of them would cover each other
INK, MUTED, GRID = "#18181b", "#71717a", "#e4e4e7"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a $ in the name of a run is a letter
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "svg.fonttype": "none",  # text stays selectable, in the page's own font
    "svg.hashsalt": "robo-rl",  # equal data give equal files
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Success, or mean return, of one method over environment steps, with an interval at every point.

    result: text of the final measurement beside the label; empty: the last value.
    """

    label: str
    env_steps: tuple[int, ...]
    value: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    result: str = ""
    success: bool = True  # False: values are mean returns, and the interval is the range of the runs
    training: bool = False  # True: of training episodes, drawn dashed and without an interval

    @classmethod
    def from_training(
        cls, label: str, env_steps: Sequence[int], runs: Sequence[Sequence[float]], success: bool
    ) -> Curve:
        """Curve of training episodes, one list of means for each run: the mean over runs."""
        value = tuple(fmean(point) for point in zip(*runs, strict=True))
        return cls(label, tuple(env_steps), value, value, value, success=success, training=True)

    @classmethod
    def from_returns(cls, label: str, env_steps: Sequence[int], returns: Sequence[Sequence[float]]) -> Curve:
        """Curve of mean returns, one list for each run: their mean, and the range from the lowest to the
        highest run, of those that are finite; NaN where none is.
        """
        points = [list(filter(math.isfinite, point)) or [math.nan] for point in zip(*returns, strict=True)]
        value = tuple(fmean(point) for point in points)
        low, high = tuple(map(min, points)), tuple(map(max, points))
        return cls(label, tuple(env_steps), value, low, high, success=False)

    @classmethod
    def from_rates(cls, label: str, env_steps: Sequence[int], rates: Sequence[SuccessRate]) -> Curve:
        """Curve of one run: Wilson intervals over its evaluation episodes."""
        low, high = zip(*(rate.wilson() for rate in rates), strict=True)
        return cls(label, tuple(env_steps), tuple(rate.rate for rate in rates), low, high)

    @classmethod
    def from_seeds(
        cls, label: str, env_steps: Sequence[int], success: Sequence[Sequence[SuccessRate]]
    ) -> Curve:
        """Curve of several training seeds, one list of success rates each: Student's intervals over seeds."""
        points = [rate_over_seeds(column) for column in zip(*success, strict=True)]
        return cls(
            label,
            tuple(env_steps),
            tuple(point.value for point in points),
            tuple(point.low for point in points),
            tuple(point.high for point in points),
        )


def spread_labels(
    positions: Sequence[float], gap: float, top: float, bottom: float = -math.inf
) -> list[float]:
    """Label positions at least `gap` apart in unchanged order, none above `top` nor, if there is room, below
    `bottom`.
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i], reverse=True)
    placed, ceiling = [0.0] * len(positions), top
    for i in order:
        placed[i] = min(positions[i], ceiling)
        ceiling = placed[i] - gap
    floor = bottom
    for i in reversed(order):
        placed[i] = max(placed[i], floor)
        floor = placed[i] + gap
    return placed


def write_learning_curves(
    path: Path,
    curves: Sequence[Curve],
    baselines: Mapping[str, float] | None = None,
    title: str = "",
    caption: str = "",
) -> tuple[Path, Path]:
    """Draw the curves to `path`.svg and `path`.png, in place of such a suffix of its own; returns both.

    baselines: label -> success rate, or return, drawn as dashed horizontal lines (the base, the base with
    zero noise).
    caption: text below the plot, of one or more lines.
    """
    if len({curve.success for curve in curves}) > 1:
        returns = ", ".join(curve.label for curve in curves if not curve.success)
        raise ConfigError(
            f"{returns} ran in an environment that reports no success, the others in one that does, so they "
            "have no axis in common. Compare runs of the same environment."
        )
    if not curves:
        raise ConfigError(
            "There is no learning curve to draw: no run logged an evaluation or an episode of its "
            "training. Give runs of robo-rl finetune that have made one; other verbs log neither."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        rows = len(curves) + len(baselines or {})
        figure = Figure(figsize=(10.4, HEIGHT_IN * max(1.0, GAP * (rows - 1))), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _draw(axes, curves, baselines or {}, title)
        if caption:
            figure.supxlabel(caption, x=0.01, ha="left", fontsize=8.5, color=MUTED)
        # runs/lr0.1 has no suffix, though pathlib takes .1 for one
        stem = path.with_suffix("") if path.suffix in (".svg", ".png") else path
        files = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1], dpi=200)
    return files


def _draw(axes: Axes, curves: Sequence[Curve], baselines: Mapping[str, float], title: str) -> None:
    end = max(curve.env_steps[-1] for curve in curves)
    success = curves[0].success
    levels, labels = [], []
    # A label of two lines leaves more of the width to the curves; there is room for a few.
    rows = len(curves) + len(baselines)
    between, gap = ("\n", TALL_GAP) if rows <= MOST_TALL else ("  ", min(GAP, 1.0 / (rows - 1)))
    low, high = (0.0, 1.0) if success else _range(curves)
    forms = [curve_form(number, curve.training) for number, curve in enumerate(curves)]
    for curve, form in zip(curves, forms, strict=True):
        colour = form["color"]
        if len(curves) <= MOST_BANDS:
            axes.fill_between(curve.env_steps, curve.low, curve.high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(curve.env_steps, curve.value, clip_on=False, **form)
        known = [value for value in curve.value if math.isfinite(value)]
        levels.append(known[-1] if known else low)
        labels.append((f"{curve.label}{between}{_result(curve)}", colour, "bold"))
    for name, level in baselines.items():
        axes.axhline(level, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        levels.append(level)
        labels.append((f"{name}{between}{100 * level:.0f} %", MUTED, "normal"))
    # as a share of the axis, which leaves a margin of 3 % above success 1
    heights = spread_labels([(level - low) / (high - low) for level in levels], gap=gap, top=1.02, bottom=0.0)
    sampled = len(curves) > len(PALETTE)  # colours repeat: a sample of each line stands before its label
    for (text, colour, weight), height in zip(labels, heights, strict=True):
        axes.annotate(
            text,
            (1.0, low + height * (high - low)),
            xycoords=axes.get_yaxis_transform(),
            xytext=(8 + SAMPLE_PT if sampled else 8, 0),
            va="center",
            textcoords="offset points",
            color=colour,
            weight=weight,
            annotation_clip=False,
        )
    if sampled:
        _draw_samples(axes, forms, [low + height * (high - low) for height in heights[: len(forms)]])
    axes.set(xlim=(0, max(end, 1)), ylim=(low, high + 0.03 * (high - low)), xlabel="Environment steps")
    axes.set_ylabel("Success" if success else "Mean return")
    if success:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: step_words(value, end)))
    if title:
        axes.set_title(title, loc="left", weight="bold", fontsize=11)


def _draw_samples(axes: Axes, forms: Sequence[Mapping[str, Any]], heights: Sequence[float]) -> None:
    """Draw a piece of each line, with its marker, beside the axes at these values of the vertical axis."""
    to_inch = Affine2D().scale(1.0 / 72.0) + axes.figure.dpi_scale_trans
    beside = to_inch + ScaledTranslation(1.0, 0.0, BboxTransformTo(axes.bbox))  # points from the right edge
    place = blended_transform_factory(beside, axes.transData)
    for form, height in zip(forms, heights, strict=True):
        x_pt = (8.0, 8.0 + 0.4 * SAMPLE_PT, 8.0 + 0.8 * SAMPLE_PT)
        axes.add_artist(Line2D(x_pt, [height] * 3, transform=place, clip_on=False, markevery=[1], **form))


def _range(curves: Sequence[Curve]) -> tuple[float, float]:
    """Lowest and highest return, at least a little apart."""
    bounds = [value for curve in curves for value in (*curve.low, *curve.high) if math.isfinite(value)]
    low, high = min(bounds, default=0.0), max(bounds, default=0.0)
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def _result(curve: Curve) -> str:
    """Text beside the label: the final measurement, or else the last value."""
    last = curve.value[-1]
    if not math.isfinite(last):
        return ", ".join(filter(None, (curve.result, "last evaluation not finite")))
    return curve.result or (f"{100 * last:.0f} %" if curve.success else f"{last:.4g}")


def curve_form(number: int, training: bool) -> dict[str, Any]:
    """Colour, line and marker of a curve. After each use of the palette, marker and line are others."""
    times, place = divmod(number, len(PALETTE))
    form = {"color": PALETTE[place], "linewidth": 2, "markersize": 4}
    if training:
        return form | {"linestyle": "--", "marker": MARKERS[times % len(MARKERS)] if times else ""}
    return form | {"linestyle": LINES[times % len(LINES)], "marker": MARKERS[times % len(MARKERS)]}


def step_words(value: float, end: float) -> str:
    """Environment steps at a tick of an axis that goes to `end`: 250, 40k or 1.5M."""
    unit, name = (1, "") if end <= 1e3 else (1e3, "k") if end < 1e6 else (1e6, "M")
    return f"{value / unit:g}{name}" if value else "0"
