"""`robo-rl data stats`: ranges of states and actions, use of the limits, images."""

from __future__ import annotations

import json
from typing import Any

from robo_rl.conf.datasets.replay import DataStatsConfig
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.review.stats import dataset_stats

_COLUMNS = ("min", "p1", "p50", "p99", "max", "mean", "std")


def main(config: DataStatsConfig) -> int:
    """Print the statistics as tables or JSON."""
    found = dataset_stats(config.path)
    print(json.dumps(found, indent=2) if config.json else stats_text(found))
    return 0


def stats_text(found: dict[str, Any]) -> str:
    """Tables of the numbers, then one line per fact."""
    lines = []
    for key, rows in found["numbers"].items():
        width = max(len(row["name"]) for row in rows)
        lines.append(f"{key:<{width + 2}}" + "".join(f"{title:>11}" for title in _COLUMNS))
        for i, row in enumerate(rows):
            cells = "".join(f"{row[title]:>11.4g}" for title in _COLUMNS)
            limit = found["at_limit"][i] if key == "action" else 0.0
            note = f"   {limit:.0%} of frames at a limit" if limit >= 0.005 else ""
            lines.append(f"  {row['name']:<{width}}{cells}{note}")
    for key, image in found["images"].items():
        mean, std = (" ".join(f"{each:.3f}" for each in image[name]) for name in ("mean", "std"))
        lines.append(f"{key}: mean {mean}, std {std} (of 1)")
    for key, bad in found["not_finite"].items():
        lines.append(
            f"'{key}' is not finite in {counted(bad['rows'], 'row')}, first in row {bad['row']} of episode "
            f"{bad['episode']:06d}: left out here. All faults: {command('data validate', path=found['path'])}"
        )
    lengths, success = found["lengths_s"], found["success"]
    lines += [
        f"episodes: {found['episodes']}, {lengths['min']:.1f} to {lengths['max']:.1f} s, "
        f"median {lengths['p50']:.1f} s",
        f"success: {success['true']} yes, {success['false']} no, {success['none']} not labelled",
        f"interventions: {found['intervention_fraction']:.1%} of frames; mean return "
        f"{found['return_mean']:.3g}",
    ]
    return "\n".join(lines)
