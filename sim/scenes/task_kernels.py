"""Computations of a step besides physics, as two pure functions that a compiler can fuse.

command: from actions to the targets of all servos. score: from states to observation, reward, success and the
end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int
from sim.bodies.protocol import CanFail, Drive, SceneTask
from sim.compile.kernels import compile_kernel
from sim.engines.protocol import Physics
from sim.scenes.task_outputs import check_outputs

FASTEST = 1e3  # m/s or rad/s


@dataclass(frozen=True, slots=True)
class TaskRules:
    """Rewards and endings of a task's episodes."""

    dense: bool  # reward: weighted terms at every step, or success alone
    max_steps: int
    ends_with_success: bool


class Counts(NamedTuple):
    """Counters of n running episodes."""

    age: Int[Tensor, " n"]  # steps made
    held: Int[Tensor, " n"]  # consecutive solved steps
    success: Bool[Tensor, " n"]


class KernelResult(NamedTuple):
    """Result of a step."""

    obs: Float[Tensor, "n o"]  # float32
    sane: Bool[Tensor, " n"]  # finite, and no extreme speed; otherwise the episode ends as a failure
    reward: Float[Tensor, " n"]  # float32
    terminated: Bool[Tensor, " n"]
    truncated: Bool[Tensor, " n"]
    counts: Counts


class TaskKernels:
    """Both functions of a task and its body, for n worlds. Raises ConfigError for a task whose functions
    return other shapes than it says.
    """

    def __init__(
        self, task: SceneTask, drive: Drive, physics: Physics, rules: TaskRules, *, compiled: bool
    ) -> None:
        self._task, self._drive, self._rules = task, drive, rules
        n = len(physics.qpos)
        begun = drive.start(torch.full((n, drive.numbers), 0.5, device=physics.qpos.device))
        goal, memory = begun.goal.contiguous(), begun.memory.contiguous()
        check_outputs(task, drive.view(physics, goal), n)
        action, state = memory.new_zeros(n, drive.action.dim), _parts(physics)
        self._run_command = compile_kernel(self._command, (memory, action, *state), eager=not compiled)
        counts = begin_counts(n, memory.device)
        self._run_score = compile_kernel(self._score, (goal, *counts, *state), eager=not compiled)

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], physics: Physics
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n w"]]:
        """Targets of all servos, and the next memory."""
        ctrl, memory = self._run_command(memory, action, *_parts(physics))
        return ctrl, memory

    def score(self, goal: Float[Tensor, "n g"], counts: Counts, physics: Physics) -> KernelResult:
        """Result of the step that led to this state. counts: before the step."""
        obs, sane, reward, terminated, truncated, *after = self._run_score(goal, *counts, *_parts(physics))
        return KernelResult(obs, sane, reward, terminated, truncated, Counts(*after))

    def _command(self, memory: Tensor, action: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        ctrl, memory = self._drive.command(memory, action, self._drive.view(Physics(*state), memory))
        return ctrl, memory.clone()

    def _score(
        self, goal: Tensor, age: Tensor, held: Tensor, success: Tensor, *state: Tensor
    ) -> tuple[Tensor, ...]:
        physics, rules = Physics(*state), self._rules
        view = self._drive.view(physics, goal)
        obs = self._task.observe(view).to(torch.float32)
        # A comparison with NaN is false. Bodies in these scenes are slower, unless they diverge.
        sane = (
            (physics.qvel.abs() < FASTEST).all(1)
            & torch.isfinite(physics.qpos).all(1)
            & torch.isfinite(obs).all(1)
        )
        over = ~sane
        if isinstance(self._task, CanFail):
            over = over | self._task.failed(view)
        age = age + 1
        held = torch.where(self._task.solved(view) & ~over, held + 1, 0)
        solved = held >= self._task.hold_steps
        success = success | solved
        terminated = over | success if rules.ends_with_success else over
        reward = torch.where(sane, self._reward(view), 0.0) if rules.dense else solved
        return (
            obs,
            sane,
            reward.to(torch.float32),
            terminated,
            (age >= rules.max_steps) & ~terminated,
            age,
            held,
            success,
        )

    def _reward(self, view: Any) -> Float[Tensor, " n"]:
        terms = self._task.terms(view)
        return torch.stack([weight * terms[name] for name, weight in self._task.weights.items()]).sum(0)


def begin_counts(num: int, device: torch.device) -> Counts:
    """Counters of episodes that begin."""
    zero = torch.zeros(num, dtype=torch.long, device=device)
    return Counts(zero, zero.clone(), zero.bool())


def _parts(physics: Physics) -> tuple[Tensor, ...]:
    return physics.qpos, physics.qvel, physics.body_m, physics.body_quat, physics.touch_n
