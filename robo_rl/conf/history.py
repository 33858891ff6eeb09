"""Settings of `robo-rl runs` and `robo-rl compare`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, setting


@dataclass
class RunsConfig:
    """`robo-rl runs`."""

    path: str = setting("runs", "folder of a run, or one around several")
    settings: int = setting(6, "largest number of differing settings that a line shows", at_least=0)
    json: bool = setting(False, "print one JSON object per run instead of a table")


@dataclass
class CompareConfig:
    """`robo-rl compare`."""

    runs: list[str] = setting(REQUIRED, "folders of runs, or folders around runs of several seeds")
    out: str = setting("runs/compare", "the plot: <out>.svg and <out>.png")
