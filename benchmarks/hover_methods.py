"""Comparison of learners of hover on the same task, starts and seeds, each for the same CPU seconds.

The updates per CPU-second of a learner are measured first in a short training that is discarded. Then every
seed makes the number of updates that fit into the budget, so that schedules end with it. Compiling, measuring
and the learning curve are not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from common import cpu_seconds, emit

from policies.flight.policy import FlightPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import METHODS
from robo_rl.eval.stats import mean_over_seeds
from robo_rl.flight.fly.learners import make_training
from robo_rl.flight.fly.recipe import total_updates
from robo_rl.flight.fly.runs import SharedStarts
from robo_rl.flight.fly.setup import FlightSetup
from sim.flight.trial import policy_pilot

ARMS = ("first_order", "first_order_lqr", "shac", "td3", "sac", "ppo")


@dataclass(frozen=True)
class Point:
    """A policy measured after some CPU seconds of training."""

    cpu_s: float
    error_m: float  # infinite if no flight stayed
    left: float


def arm(name: str, base: FlyConfig, updates: int, seed: int) -> FlyConfig:
    """Settings of an arm of the comparison: `base` with a method and, for names in `_lqr`, the LQR start."""
    start = "lqr" if name.endswith("_lqr") else "random"
    return replace(base, method=METHODS[name.removesuffix("_lqr")](), start=start, updates=updates, seed=seed)


def compare(
    names: list[str], base: FlyConfig, budgets_s: list[float], seeds: int, marks: int, probe_s: float
) -> dict[str, list[Point]]:
    """Train and report every arm; returns each arm's first-seed curve at the largest budget."""
    curves: dict[str, list[Point]] = {}
    for name in names:
        speed = updates_per_s(name, base, probe_s)
        for budget_s in budgets_s:
            updates = max(1, round(budget_s * speed))
            runs = []
            for seed in range(seeds):
                last = budget_s == budgets_s[-1] and seed == 0
                curve, env_steps = train(arm(name, base, updates, seed), marks if last else 1)
                runs.append(curve[-1])
                if last:
                    curves[name] = curve
            report(f"hover/{name}/{budget_s:g}_cpu_s", runs, updates, env_steps)
    for name, curve in curves.items():
        for point in curve:
            if math.isfinite(point.error_m):
                emit(
                    f"hover/{name}/curve/{point.cpu_s:.0f}_cpu_s", round(point.error_m, 4), "m",
                    left=round(point.left, 4),
                )  # fmt: skip
    return curves


def updates_per_s(name: str, base: FlyConfig, probe_s: float) -> float:
    """Updates per CPU-second of this arm, after its start, for updates that learn."""
    config = arm(name, base, 10**6, seed=1000)
    setting = FlightSetup.of(config)
    trainer = make_training(config, setting, config.seed).trainer
    for _ in range(1 + getattr(config.method, "warmup_rounds", 0)):
        trainer.update()
    start_s, first = cpu_seconds(), trainer.updates
    while cpu_seconds() - start_s < probe_s:
        trainer.update()
    return (trainer.updates - first) / (cpu_seconds() - start_s)


def train(config: FlyConfig, marks: int) -> tuple[list[Point], int]:
    """One training, measured `marks` times. Returns the points, and the environment's steps."""
    setting = FlightSetup.of(config)
    training = make_training(config, setting, config.seed)
    trainer, policy = training.trainer, training.policy
    assert isinstance(policy, FlightPolicy)
    total, points, used_s = total_updates(config), [], 0.0
    while not trainer.done:
        start_s = cpu_seconds()
        trainer.update()
        used_s += cpu_seconds() - start_s
        if trainer.done or trainer.updates * marks // total > (trainer.updates - 1) * marks // total:
            training.after()
            with torch.no_grad():
                trial = SharedStarts.of(config, setting).fly(policy_pilot(policy.columns))
            error_m = float(trial.error_m.mean()) if len(trial.error_m) else math.inf
            points.append(Point(used_s, error_m, float(trial.left.float().mean())))
    return points, trainer.env_steps


def report(name: str, runs: list[Point], updates: int, env_steps: int) -> None:
    """Mean over seeds with its interval, and every seed."""
    cpu_s = [round(run.cpu_s, 1) for run in runs]
    for what, values, unit in (
        ("position_error_m", [run.error_m for run in runs], "m"),
        ("terminated_fraction", [run.left for run in runs], "fraction"),
    ):
        mean, extra = sum(values) / len(values), {}
        if not math.isfinite(mean):  # no flight of some seed stayed; the fraction that left is reported
            continue
        if len(values) > 1:
            found = mean_over_seeds(values)
            most = 1.0 if unit == "fraction" else math.inf
            extra = {"low": round(max(0.0, found.low), 4), "high": round(min(most, found.high), 4)}
        emit(
            f"{name}/{what}",
            round(mean, 4),
            unit,
            per_seed=[round(value, 4) for value in values],
            train_cpu_s=cpu_s,
            updates=updates,
            env_steps=env_steps,
            **extra,
        )


def picture(path: Path, curves: dict[str, list[Point]]) -> None:
    """Plot of the error of flights that stayed, and of the fraction that left, over CPU seconds of
    training.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.4), constrained_layout=True)
    for name, curve in curves.items():
        seconds = [point.cpu_s for point in curve]
        axes[0].plot(seconds, [100.0 * point.error_m for point in curve], marker="o", ms=3, label=name)
        axes[1].plot(seconds, [100.0 * point.left for point in curve], marker="o", ms=3, label=name)
    axes[0].set(xlabel="CPU seconds of training", ylabel="position error [cm]", yscale="log")
    axes[1].set(xlabel="CPU seconds of training", ylabel="left the box [%]")
    axes[0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
