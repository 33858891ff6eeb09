"""Shapes of what a task's functions return, checked once when its environment is made."""

from __future__ import annotations

from typing import Any

import torch

from robo_rl.core.errors import ConfigError
from sim.bodies.protocol import SceneTask


@torch.no_grad()
def check_outputs(task: SceneTask, view: Any, n: int) -> None:
    """Raise ConfigError for functions of a task that do not return what `SceneTask` says. n: worlds of the
    view.
    """
    named = ", ".join(f"{name} {count}" for name, count, _ in task.obs_parts)
    total = sum(count for _, count, _ in task.obs_parts)
    observed = tuple(task.observe(view).shape)
    if len(observed) == 2 and observed[1] != total:
        raise ConfigError(
            f"observe() of {task.name} returns {observed[1]} numbers, obs_parts names {total} ({named})."
        )
    if observed != (n, total):
        raise ConfigError(f"observe() of {task.name} returns the shape {observed}; expected {(n, total)}.")
    solved = task.solved(view)
    if solved.dtype != torch.bool or tuple(solved.shape) != (n,):
        raise ConfigError(
            f"solved() of {task.name} returns {str(solved.dtype).removeprefix('torch.')} of the shape "
            f"{tuple(solved.shape)}; expected bool, {(n,)}."
        )
    if missing := [name for name in task.weights if name not in task.terms(view)]:
        raise ConfigError(
            f"weights of {task.name} names {', '.join(missing)}, terms() returns "
            f"{', '.join(task.terms(view))}. Give each weight a term."
        )
