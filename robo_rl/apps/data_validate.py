"""`robo-rl data validate`: every fault of a dataset, with the episode it is in."""

from __future__ import annotations

from pathlib import Path

from robo_rl.apps.progress import progress, show
from robo_rl.conf.schema import DataValidateConfig
from robo_rl.data.recover import recover
from robo_rl.data.schema import DatasetMeta
from robo_rl.data.validate import validate


def main(config: DataValidateConfig) -> int:
    """Print the faults; 2 when there is an error among them, 0 for warnings only."""
    DatasetMeta.load(
        Path(config.path)
    )  # a folder that is no dataset at all is a mistake in the command, not a fault in it
    if config.recover:
        for episode in recover(config.path):
            state = "complete" if episode.complete else "incomplete"
            print(f"Recovered episode {episode.number:06d}: {episode.frames} frames, {state}")
    with progress(None, "validate", "episode") as bar:
        faults = validate(config.path, show(bar))
    for fault in faults:
        print(fault)
    errors = sum(fault.severity == "error" for fault in faults)
    print(f"{config.path}: {errors} errors, {len(faults) - errors} warnings" if faults else f"{config.path}: sound")
    return 2 if errors else 0
