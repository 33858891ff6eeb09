"""Settings of `robo-rl data list|edit`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, one_of, setting

DATASET = "folder of the dataset"
DRY_RUN = "only print what would be done"


@dataclass
class DataListConfig:
    """`robo-rl data list`."""

    path: str = setting(REQUIRED, DATASET)
    json: bool = setting(False, "print one JSON object per episode instead of a table")


@dataclass
class DataEditConfig:
    """`robo-rl data edit`: one of delete=, split=, relabel= and undo=true."""

    path: str = setting(REQUIRED, DATASET)
    delete: list[str] = setting([], "episodes to delete, e.g. [3,7-9]")
    relabel: list[str] = setting([], "episodes that get the label success= or task=")
    success: str = one_of("keep", "true", "false", "none", help="label of relabel=; none: unknown")
    task: str | None = setting(None, "instruction of relabel=; none: keep it")
    by: str = setting("", "name of the person who changes the label, stored with the earlier label")
    split: int | None = setting(None, "episode to cut into two, before frame=", at_least=0)
    frame: int | None = setting(None, "first frame of the second part of split=", at_least=1)
    undo: bool = setting(False, "restore the state before the last edit; a second time: restore the edit")
    keep_undo: bool = setting(
        True, "keep the former state for undo=true; false: free the disk space of deleted episodes"
    )
    dry_run: bool = setting(False, DRY_RUN)
