"""Errors that a user can cause. Each message says what was found, what was expected and what to do.

The command line prints the message of a `RoboRLError` as one sentence and exits with `exit_code`. Any other
exception is a defect and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable

from robo_rl.core.text.nearest import did_you_mean, nearest

MOST_NAMES = 30  # longer lists are shortened
NEAREST = 5  # names shown of a longer list


class RoboRLError(Exception):
    """Base of all errors that a user's input, data or machine can cause."""

    exit_code = 2


class UnknownNameError(RoboRLError):
    """A name that is not in a registry. `listed_by`: the command that lists all names. `advice`: a last
    sentence.
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], listed_by: str = "", advice: str = ""
    ) -> None:
        names = sorted(known)
        close = nearest(name, names, NEAREST)
        hint = did_you_mean(name, names)
        shown = f"Known: {', '.join(names)}."
        if len(names) > MOST_NAMES:
            shown = f"Nearest of {len(names)}: {', '.join(close)}." if close else f"There are {len(names)}."
            shown += f" All of them: {listed_by}" if listed_by else ""
            shown += "." if listed_by and advice else ""
        super().__init__(f"Unknown {kind} '{name}'.{hint} {shown}" + (f" {advice}" if advice else ""))


class ConfigError(RoboRLError):
    """A configuration key or value that cannot be used."""


class ChangedSettingsError(ConfigError):
    """A run that cannot be resumed, because settings differ from those that it was started with."""


class DataError(RoboRLError):
    """A dataset, episode or replay file that cannot be read or written."""


class LockedError(RoboRLError):
    """A run or dataset that another process is writing."""


class CheckpointError(RoboRLError):
    """A checkpoint or bundle that is damaged, or does not fit the object that loads it."""


class DivergedError(RoboRLError):
    """A training whose loss or weights are no longer finite.

    The message consists of what was found, what to do (advice), and the policy that can be used (kept).
    """

    def __init__(self, found: str, advice: str = "", kept: str = "") -> None:
        super().__init__(" ".join(filter(None, (found, advice, kept))))
        self.found = found


class EnvError(RoboRLError):
    """An environment that cannot be built or has died; its message holds the worker's traceback."""

    exit_code = 3


class MissingDependencyError(RoboRLError):
    """An optional package that is not installed; the message holds the command that installs it."""


class BusError(RoboRLError):
    """A topic, service or node of the robot's bus that cannot be reached, offered or decoded."""

    exit_code = 3


class BusNameError(BusError):
    """A name on the robot's bus that cannot be used, is taken, or that no running node has: wrong input."""

    exit_code = 2


class DriverError(RoboRLError):
    """A robot that cannot be reached, refuses a command, or violates its protocol."""

    exit_code = 3


class RemoteError(RoboRLError):
    """A policy server that cannot be reached, refuses, answers late or not as agreed, or has died."""

    exit_code = 3


class DiskFullError(RoboRLError):
    """A full disk, or one with too little space to continue safely.

    fact: what happened. advice: what to do after some space is free; `fact` is kept for callers whose advice
    is another.
    """

    exit_code = 4

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(f"{fact} {advice}" if advice else fact)
        self.fact = fact
