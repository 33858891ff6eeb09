"""Contents of run folders, finished or not: verb, settings, success and learning curve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from policies.saved_files import POLICY_FILE
from robo_rl.core.errors import CheckpointError, DataError, RoboRLError
from robo_rl.core.files.describe_path import describe_path, not_a
from robo_rl.core.files.durable import read_json
from robo_rl.core.text.counts import counted
from robo_rl.eval.stats import SuccessRate
from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve
from robo_rl.runs.loaded_policy import trained_env_spec
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.success_note import EVALUATION_FILE, measured_elsewhere

RUN_FILE = "run.json"
ORIGIN = ["method.name", "data", "task", "base", "teacher", "env", "demos"]  # what a run is made of
MAIN_SETTINGS = [*ORIGIN, "net.name", "process.name", "seed"]
VERB_BY_SETTING = {  # a setting of one verb alone, for runs of versions that did not record their verb
    "teacher": "distill",
    "final_episodes": "finetune",
    "camera": "pretrain",
    "data": "train",
}
FLOWN = "policy"  # name of the rows of results.json with the flights of the run's own policies
RESULTS = ("policy", "head")  # keys of results.json with the success of the run's own policy


@dataclass(frozen=True)
class PastRun:
    """Contents of one run's folder, read without loading its policy."""

    path: Path
    settings: Mapping[str, Any]  # dotted keys
    rate: SuccessRate | None  # None: not measured, or the environment reports no success
    curve: LearningCurve | None  # None: no evaluations during training
    done: bool  # it has a final policy or encoder
    # Where the environment reports no success: the mean of the returns that are finite, and how many are not.
    mean_return: float | None = None
    lost_returns: int = 0
    verb: str = ""  # that made the run; empty: unknown
    started: str = ""  # UTC, as 2026-05-01T12:00:00Z; empty: unknown
    env: str = ""  # environment of the final measurement; empty: unknown
    elsewhere: str = ""  # environment and step limit of the final measurement, if they are not the policy's

    @property
    def return_in_words(self) -> str:
        """The mean return, with the number of those that are not finite; empty if none is known."""
        if self.mean_return is None:
            return "mean return not finite" if self.lost_returns else ""
        lost = f", without {counted(self.lost_returns, 'return')} not finite" if self.lost_returns else ""
        return f"mean return {self.mean_return:.4g}{lost}"

    @classmethod
    def read(cls, path: str | Path) -> PastRun:
        """Read a run folder. Raises DataError if it is no run, or damaged."""
        run = RunDir.open(path)
        try:
            return cls._read(run)
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:  # JSON of another content
            found = f"{type(error).__name__}: {error}"
            raise DataError(
                f"The results of {path} cannot be read ({found}). Restore them from a copy, or start the run "
                "again."
            ) from error

    @classmethod
    def _read(cls, run: RunDir) -> PastRun:
        curve, rate, about = run.path / CURVE_FILE, _rate(run.path), read_json(run.path / RUN_FILE)
        settings, results = _effective(dict(_flat(run.config()))), _results(run.path)
        saved = "env" in results and (run.policy / POLICY_FILE).is_file()
        try:
            elsewhere = measured_elsewhere(results, trained_env_spec(run.policy).name) if saved else ""
        except CheckpointError:  # `find_policy` tells who needs the policy
            elsewhere = ""
        verb = next((name for key, name in VERB_BY_SETTING.items() if key in settings), "")
        return cls(
            run.path,
            settings,
            rate,
            LearningCurve.from_json(read_json(curve)) if curve.is_file() else None,
            run.policy.is_dir() or run.encoder.is_dir(),
            *(_mean_return(run.path) if rate is None else (None, 0)),
            str(about.get("verb", verb)),
            str(about.get("started", "")),
            str(results.get("env", _note(run.path).get("env", ""))),
            elsewhere,
        )


def find_runs(folder: Path) -> list[Path]:
    """Folders of runs at or below `folder`, sorted; runs inside a run are left out."""
    if (folder / RUN_FILE).is_file():
        return [folder]
    if not folder.is_dir():
        return []
    return [run for child in sorted(folder.iterdir()) if child.is_dir() for run in find_runs(child)]


def read_runs(folder: Path) -> tuple[list[PastRun], list[str]]:
    """The sound runs at or below `folder`, and a sentence on each damaged one."""
    runs, faults = list[PastRun](), list[str]()
    for path in find_runs(folder):
        try:
            runs.append(PastRun.read(path))
        except RoboRLError as error:
            faults.append(f"{path} is damaged and not listed: {error}")
    return runs, faults


def no_run(folder: Path) -> str:
    """Sentence on a folder in which `find_runs` finds nothing."""
    if not folder.exists():
        return not_a(folder, "a run")
    return f"{folder} {describe_path(folder)}, and no run is in it."


def differing(runs: list[PastRun]) -> list[dict[str, Any]]:
    """For each run, its settings that have several values among the runs of its verb, without `out`: defaults
    differ between verbs. Those that say what the run is made of come first, also where only runs of other
    verbs differ in them or lack them.
    """
    origin = [key for key in _varied(runs) if key in ORIGIN]
    of_verb = {
        verb: _varied([run for run in runs if run.verb == verb]) for verb in {run.verb for run in runs}
    }
    return [
        {
            key: run.settings[key]
            for key in dict.fromkeys([*origin, *of_verb[run.verb]])
            if key in run.settings
        }
        for run in runs
    ]


def _varied(runs: list[PastRun]) -> list[str]:
    """Settings with several values among the runs, and main ones that only some of them have."""
    keys = dict.fromkeys([*MAIN_SETTINGS, *(key for run in runs for key in run.settings)])
    values = {key: [repr(run.settings[key]) for run in runs if key in run.settings] for key in keys}
    return [
        key
        for key, found in values.items()
        if key != "out" and (len(set(found)) > 1 or (key in MAIN_SETTINGS and 0 < len(found) < len(runs)))
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _effective(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were used: `env_steps` and `num_envs` take the place of the method's own numbers."""
    used: dict[str, Any] = {}
    for key, value in settings.items():
        if key in ("env_steps", "method.env_steps"):
            used["env_steps"] = settings.get("env_steps") or settings.get("method.env_steps")
        elif key != "method.default_envs" or not settings.get("num_envs"):
            used[key] = value
    return used


def _note(path: Path) -> dict[str, Any]:
    """Note of the last measurement of the run's policy; empty without one."""
    note = path / "policy" / EVALUATION_FILE
    return dict(read_json(note)) if note.is_file() else {}


def _results(path: Path) -> dict[str, Any]:
    """results.json of a run; empty without one."""
    results = path / "results.json"
    found = read_json(results) if results.is_file() else {}
    return found if isinstance(found, dict) else {}


def _mean_return(path: Path) -> tuple[float | None, int]:
    """Mean of the finite returns of the final measurement in results.json, or else the mean return of the
    last `robo-rl evaluate`, if the environment reports no success; and the number of returns that are not
    finite, of which an evaluation's note tells no more than that there are some.
    """
    found = _results(path)
    for key in RESULTS:
        measured = found.get(key)
        if isinstance(measured, dict) and not measured.get("reports_success", True) and measured["returns"]:
            known = [total for total in measured["returns"] if total is not None]
            return float(mean(known)) if known else None, len(measured["returns"]) - len(known)
    noted = _note(path)
    if "mean_return" not in noted:
        return None, 0
    return (None, 1) if noted["mean_return"] is None else (float(noted["mean_return"]), 0)


def _rate(path: Path) -> SuccessRate | None:
    """Success from results.json, for flights over all seeds of training, or else from the last
    `robo-rl evaluate`. None where the environment reports none.
    """
    found = _results(path)
    for key in RESULTS:
        entry = found.get(key)
        if isinstance(entry, dict) and not entry.get("reports_success", True):
            return None
        if isinstance(entry, dict) and "rate" in entry:
            return SuccessRate(entry["rate"]["k"], entry["rate"]["n"])
    flights = [row["held"] for row in found.get("rows", ()) if row.get("name") == FLOWN and "held" in row]
    if flights:
        return SuccessRate(sum(one["k"] for one in flights), sum(one["n"] for one in flights))
    noted = _note(path)
    return SuccessRate(noted["k"], noted["n"]) if "k" in noted else None
