"""`report.html`: one file with training, results, their uncertainty and the commands that reproduce them."""

from __future__ import annotations

import base64
import mimetypes
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from robo_rl.core.files.durable import write_atomic
from robo_rl.core.provenance import commit, machine, versions
from robo_rl.eval import text
from robo_rl.eval.probe import Probe, Recommendation
from robo_rl.eval.results import ResultRow
from robo_rl.eval.stats import SIGNIFICANT

EMBED_BYTES = 1_500_000  # videos up to this size are embedded in the page
_UNIT = re.compile(r"(?<=\d) (?=%|(?:ms|s|min|h|Hz)\b)")  # the space between a number and its unit
_BASES = ("base", "base_zero_noise")


@dataclass(frozen=True, slots=True)
class Media:
    """A figure (SVG, PNG) or a video (MP4) with its caption."""

    path: Path
    caption: str


@dataclass(frozen=True, slots=True)
class Report:
    """Contents of a report. facts: short list such as task, demonstrations, seeds."""

    title: str
    subtitle: str
    rows: Sequence[ResultRow]
    wall_s: float
    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Sequence[Media] = ()
    videos: Sequence[Media] = ()
    probe: Probe | None = None
    recommendation: Recommendation | None = None
    commands: Sequence[str] = ()


def write_report(path: Path, report: Report) -> None:
    """Render and write the page. Figures and small videos are embedded; larger videos are linked by relative
    path.
    """
    write_atomic(path, render(report, path.parent).encode())


def render(report: Report, folder: Path) -> str:
    """HTML of the page, for a file in `folder`."""
    jinja = Environment(
        loader=PackageLoader("robo_rl.eval"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        "seconds": text.seconds, "ms": text.milliseconds, "p": text.p_value, "count": text.count,
        "percent": text.percent, "interval": text.interval, "nobreak": _nobreak, "whisker": whisker,
        "figure": _data_url, "video": partial(_video_url, folder),
    }  # fmt: skip
    return jinja.get_template("report.html.j2").render(
        report=report,
        rows=[_row(row, report.rows) for row in report.rows],
        tiles=headline(report),
        commit=commit(),
        machine=machine(),
        versions=versions(),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _row(row: ResultRow, rows: Sequence[ResultRow]) -> dict[str, Any]:
    """Template values of a row, with its comparison to the base: "better" or "worse" if significant, else
    "".
    """
    base = next((other.rate.rate for other in rows if other.name == "base"), None)
    verdict = ""
    if base is not None and row.p_vs_base is not None and row.p_vs_base < SIGNIFICANT:
        verdict = "better" if row.rate.rate > base else "worse"
    return {"row": row, "verdict": verdict, "best": row.rate.rate == max(other.rate.rate for other in rows)}


def whisker(low_value_high: tuple[float, float, float]) -> dict[str, str]:
    """Left edge, width and point of an interval bar, in per cent of its cell."""
    low, value, high = (100 * x for x in low_value_high)
    return {"left": f"{low:.1f}%", "width": f"{max(high - low, 1):.1f}%", "point": f"{value:.1f}%"}


def headline(report: Report) -> list[tuple[str, str, str]]:
    """Main figures at the top of the page: (value, name, detail)."""
    rows = {row.name: row for row in report.rows}
    tiles: list[tuple[str, str, str]] = []
    base, tuned = rows.get("base"), [row for row in report.rows if row.name not in _BASES]
    if base is not None and tuned:
        best = max(tuned, key=lambda row: row.rate.rate)
        tiles.append((text.percent(best.rate), "Success", f"{best.label}; {_against(best, rows)}"))
        # The head's steps come after its teacher's, and alone would understate the cost.
        if trained := [row for row in tuned if row.env_steps and row.name != "head"]:
            cheapest = max(trained, key=lambda row: (row.rate.rate, -row.env_steps))
            detail = f"of fine-tuning: {cheapest.label}"
            if (head := rows.get("head")) is not None and head.env_steps:
                detail += f"; the head adds {text.count(head.env_steps)}"
            tiles.append((text.count(cheapest.env_steps), "Environment steps", detail))
    if base is not None and (head := rows.get("head")) is not None and head.latency.p50_ms > 0:
        factor = base.latency.p50_ms / head.latency.p50_ms
        before_ms, after_ms = text.milliseconds(base.latency.p50_ms), text.milliseconds(head.latency.p50_ms)
        detail = f"{before_ms} → {after_ms} ms per decision"
        cpu_ms = base.latency.cpu_ms, head.latency.cpu_ms
        if cpu_ms[0] is not None and cpu_ms[1] is not None:
            cpu = f"{text.milliseconds(cpu_ms[0])} → {text.milliseconds(cpu_ms[1])}"
            detail += f" (CPU time: {cpu} ms), timed alternately"
        tiles.append((f"{factor:.1f}×" if factor < 10 else f"{factor:.0f}×", "Faster decisions", detail))
    tiles.append((text.seconds(report.wall_s), "Total time", "wall time of the entire run"))
    return tiles


def _against(best: ResultRow, rows: Mapping[str, ResultRow]) -> str:
    """Both bases with their tests: zero noise alone may explain much of a gain over N(0, I) noise."""
    base, zero = rows["base"], rows.get("base_zero_noise")
    words = f"the base {text.percent(base.rate)} with N(0, I) noise ({text.p_equals(best.p_vs_base)})"
    if zero is not None:
        words += f", {text.percent(zero.rate)} with zero noise"
        words += "" if best.p_vs_zero_noise is None else f" ({text.p_equals(best.p_vs_zero_noise)})"
    return f"{words}; the same {best.rate.n} episodes"


def _nobreak(words: str) -> str:
    """Text with non-breaking spaces: a p-value stays with its sign, and a number with its unit."""
    joined = words.replace("p < ", "p\u00a0<\u00a0").replace("p = ", "p\u00a0=\u00a0")
    return _UNIT.sub("\u00a0", joined)


def _data_url(path: Path) -> str:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _video_url(folder: Path, path: Path) -> str:
    if path.stat().st_size <= EMBED_BYTES:
        return _data_url(path)
    return Path(os.path.relpath(path, folder)).as_posix()
