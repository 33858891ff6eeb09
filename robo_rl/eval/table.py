"""Table of results in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from robo_rl.eval import text
from robo_rl.eval.results import ResultRow
from robo_rl.eval.stats import SIGNIFICANT

_COLUMNS = ("k/n", "success", "95 %", "p vs base", "ms p50", "ms p99", "env steps", "wall", "CPU")


def results_table(rows: Sequence[ResultRow], title: str = "Results") -> Table:
    """One row per policy: green if significantly better than the base, red if significantly worse."""
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    table.add_column("policy", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    base = next((row.rate.rate for row in rows if row.name == "base"), None)
    for row in rows:
        table.add_row(
            row.label,
            f"{row.rate.k}/{row.rate.n}",
            f"[{_colour(row, base)}]{text.percent(row.rate)}[/]",
            text.interval(row.rate),
            text.p_value(row.p_vs_base),
            text.milliseconds(row.latency.p50_ms),
            text.milliseconds(row.latency.p99_ms),
            text.count(row.env_steps),
            text.seconds(row.train_wall_s),
            text.seconds(row.train_cpu_s),
        )
    return table


def _colour(row: ResultRow, base: float | None) -> str:
    if base is None or row.p_vs_base is None or row.p_vs_base >= SIGNIFICANT:
        return "bold"
    return "bold green" if row.rate.rate > base else "bold red"


def print_results(rows: Sequence[ResultRow], title: str = "Results", console: Console | None = None) -> None:
    """Print the table and a line that explains its columns."""
    console = console or Console()
    if not console.is_terminal:  # a log file has no width; numbers must not be wrapped
        console.width = max(console.width, 120)
    console.print(results_table(rows, title))
    console.print(
        "95 %: Wilson interval in per cent. p: exact McNemar on the same seeds. ms: one decision of one "
        "robot. env steps, wall, CPU: training of this stage.",
        style="dim",
    )
