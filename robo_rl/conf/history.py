"""Settings of `robo-rl runs`, `compare`, `push` and `pull`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class RunsConfig:
    """`robo-rl runs`."""

    path: str = setting("runs", "folder of a run, or of several runs")
    settings: int = setting(
        6, "largest number of differing settings that a line shows; the others are counted", at_least=0
    )
    json: bool = setting(False, "print one JSON object per run instead of a table")


@dataclass
class CompareConfig:
    """`robo-rl compare`."""

    runs: list[str] = setting(REQUIRED, "folders of runs, or folders with runs of several seeds; one or more")
    out: str = setting("runs/compare", "the plot: <out>.svg and <out>.png")


@dataclass
class PushConfig:
    """`robo-rl push`."""

    path: str = setting(REQUIRED, "folder of a run, a policy, a bundle or a dataset")
    repo: str = setting(REQUIRED, "repository on the Hugging Face Hub: <user or organisation>/<name>")
    private: bool = setting(True, "make a new repository private; false: everybody may read it")
    overwrite: bool = setting(False, "replace an earlier push; older versions stay in its history")
    message: str = setting("", "message of the commit; empty: a description of what is pushed")


@dataclass
class PullConfig:
    """`robo-rl pull`."""

    repo: str = setting(REQUIRED, "repository on the Hugging Face Hub: <user or organisation>/<name>")
    out: str = setting(REQUIRED, "new folder for the download")
    kind: str = one_of("policy", "dataset", help="content of the repository; policy: run, policy or bundle")
    revision: str = setting("main", "branch, tag or commit")
