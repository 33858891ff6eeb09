"""Plots and videos of flights through fields of cylinders. Each start has its own field."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from robo_rl.eval.flight.swarm_log import SwarmLog
from robo_rl.eval.flight.swarm_plots import write_swarm_plot
from robo_rl.eval.flight.swarm_video import write_swarm_video
from robo_rl.flight.fly.table import LABELS
from sim.flight.trial import Trial
from sim.tasks.flight.obstacles import ObstacleTask, field_axes

DRAWN, FILMED = 3, 2  # numbers of starts


def write_field_pictures(
    out: Path, task: ObstacleTask, trials: dict[str, Trial], title: str, film: bool
) -> None:
    """Write flight.png (first starts, a row per pilot) and flight.mp4 (the learned policy on the first two
    starts).
    """
    fields = min(DRAWN, trials["policy"].position_m.shape[2])
    logs = {name: [field_log(task, name, trial, i) for i in range(fields)] for name, trial in trials.items()}
    write_swarm_plot(out / "flight.png", [log for group in logs.values() for log in group], title)
    if film:
        write_swarm_video(out / "flight.mp4", logs["policy"][:FILMED])


def field_log(task: ObstacleTask, name: str, trial: Trial, start: int) -> SwarmLog:
    """Log of one start; a drone that collided stays at the point of collision."""
    assert trial.external is not None
    steps = len(trial.position_m)
    position, quat, goal = (
        _held(rows[:, :, start].numpy()) for rows in (trial.position_m, trial.quat_wxyz, trial.goal_m)
    )
    axes = field_axes(trial.external[:, start : start + 1], task.world)
    return SwarmLog(
        f"{LABELS.get(name, name)}, start {start}",
        (np.arange(steps) + 1) * task.dt_s,
        position[:, None],
        quat[:, None],
        goal[:, None],
        axes.T.numpy(),
        ~trial.held[start : start + 1].numpy(),
        task.world.cylinder_m,
        task.world.room_m,
    )


def _held(rows: Float[ndarray, "t k"]) -> Float[ndarray, "t k"]:
    """Rows over time, with the last finite one repeated to the end."""
    flown = np.isfinite(rows).all(1)
    return rows[np.minimum(np.arange(len(rows)), max(int(flown.sum()) - 1, 0))]
