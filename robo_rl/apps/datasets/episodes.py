"""`robo-rl data list`: the episodes of a dataset, one line each."""

from __future__ import annotations

import json
import sys

from robo_rl.conf.datasets.review import DataListConfig
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.edit.listing import EpisodeRow, list_episodes
from robo_rl.data.episodes.recover import staging_sentence

_SUCCESS = {True: "yes", False: "no", None: "-"}
_TASK_CHARS = 48


def main(config: DataListConfig) -> int:
    """Print the episodes as a table or as JSON lines."""
    rows, waiting = list_episodes(config.path), staging_sentence(config.path)
    if config.json:
        print("\n".join(json.dumps(row.to_json()) for row in rows))
        if waiting:
            print(waiting, file=sys.stderr)
        return 0
    print(table(rows))
    labelled = [row.success for row in rows if row.success is not None]
    print(
        f"{config.path}: {counted(len(rows), 'episode')}, {sum(labelled)}/{len(labelled)} successful, "
        f"{sum(row.seconds for row in rows) / 60:.1f} min, {sum(row.bytes for row in rows) / 1e6:.1f} MB"
    )
    if waiting:
        print(waiting)
    if any(row.fault for row in rows):
        print(f"Next:   {command('data repair', path=config.path, dry_run=True)}")
    elif rows:
        print(f"Next:   {command('data show', path=config.path, episode=rows[0].number)}")
    return 0


def table(rows: list[EpisodeRow]) -> str:
    """Rows in columns; the fault of an episode that cannot be read instead of its facts."""
    titles = ("episode", "frames", "seconds", "success", "human frames (parts)", "MB", "task")
    cells = [titles, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(titles) - 1)]
    return "\n".join(
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(each.rjust(w) for each, w in zip(line[1:], widths[1:], strict=False)),
            ]
        )
        + f"  {line[-1]}"
        for line in cells
    )


def _cells(row: EpisodeRow) -> tuple[str, ...]:
    name, size = f"{row.number:06d}", f"{row.bytes / 1e6:.1f}"
    if row.fault:
        return name, "?", "?", "?", "?", size, f"cannot be read: {row.fault.split(': ')[0][:_TASK_CHARS]}"
    task = row.task if len(row.task) <= _TASK_CHARS else row.task[: _TASK_CHARS - 3] + "..."
    task = "".join(letter if letter.isprintable() else " " for letter in task)
    note = "" if row.complete else " (interrupted)"
    human = f"{row.intervention_frames} ({row.interventions})" if row.interventions else "-"
    seconds = f"{row.seconds:.1f}"
    return name, str(row.frames), seconds, _SUCCESS[row.success], human, size, (task + note).strip()
