"""Trainings and evaluations that a benchmark keeps in its folder: a second call makes only those missing."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from common import cpu_seconds, emit, into_log, verb

from robo_rl.eval.stats import SuccessRate
from sim.registry import task_in

FINAL_SEED = 1  # episodes of the tables


def trained(run: Path, log: Path, *words: str) -> float | None:
    """Train a policy into the folder `run`, and return the CPU time [s]; None for one that was trained
    before. A training that was stopped continues.
    """
    if (run / "policy").exists():
        return None
    begun_s = cpu_seconds()
    with into_log(log):
        again = "resume=true" if (run / "run.json").exists() else "overwrite=true"
        verb("train", *words, f"out={run}", again)
    return round(cpu_seconds() - begun_s)


def measured(policy: Path, result: Path, log: Path, episodes: int, *words: str) -> dict[str, Any]:
    """Evaluation from zero noise, kept in `result` with its number of episodes in the name."""
    kept = result.with_name(f"{result.name}_{episodes}.json")
    if not kept.exists():
        given = (f"policy={policy}", f"out={kept}", f"episodes={episodes}", f"seed={FINAL_SEED}", "noise=0")
        with into_log(log):
            verb("evaluate", *given, *words)
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def outcomes(measurement: dict[str, Any], env: str = "", number: int | None = None) -> list[bool]:
    """Successes of an evaluation; number: of the episodes with this task of `env` alone."""
    successes = zip(measurement["policy"]["seeds"], measurement["policy"]["success"], strict=True)
    return [success for seed, success in successes if number is None or task_in(env, seed) == number]


def report(name: str, of_seeds: list[list[bool]], spent: dict[str, Any]) -> None:
    """Print the success rate over all seeds, and that of each."""
    rate = SuccessRate.of([success for each in of_seeds for success in each])
    counts = {"k": rate.k, "n": rate.n, "wilson95": list(rate.wilson()), "seeds": list(map(fmean, of_seeds))}
    emit(name, rate.rate, "fraction", **counts, **spent)
