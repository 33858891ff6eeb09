"""`robo-rl data repair`: repair what can be repaired, and say why the rest cannot."""

from __future__ import annotations

from robo_rl.conf.datasets.replay import DataRepairConfig
from robo_rl.core.text.counts import counted
from robo_rl.data.review.repair import repair
from robo_rl.runs.progress import progress_callback


def main(config: DataRepairConfig) -> int:
    """Repair and print what was done; returns 2 if faults remain."""
    with progress_callback("repair", "episode") as advance:
        report = repair(config.path, drop=config.drop, dry_run=config.dry_run, progress=advance)
    for sentence in report.done:
        print(f"{'would be: ' if report.dry_run else ''}{sentence}")
    for fault in report.refused:
        print(fault)
    if report.refused:
        print(
            f"{config.path}: {counted(len(report.refused), 'fault')} cannot be repaired. Restore the "
            "episodes from a copy, or delete them by drop=true; data edit undo=true brings them back."
        )
        return 2
    print(f"{config.path}: {'sound' if not report.done else 'sound, after these repairs'}")
    return 0
