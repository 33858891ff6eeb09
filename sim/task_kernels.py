"""What a step of a task computes beside physics, as two pure functions that a compiler can fuse.

command: from actions to the targets of all servos.   judge: from states to observation, success and reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sim.drive import CanFail, Drive, SceneTask
from sim.engines.protocol import Physics
from sim.kernels import compile_kernel

FASTEST = 1e3  # m/s or rad/s


class TaskKernels:
    """Both functions of one task and what it commands, for n worlds. `dense`: is the reward made of terms at all?"""

    def __init__(self, task: SceneTask, drive: Drive, physics: Physics, *, dense: bool, compiled: bool) -> None:
        self._task, self._drive, self._dense = task, drive, dense
        n = len(physics.qpos)
        begun = drive.start(torch.full((n, drive.numbers), 0.5, device=physics.qpos.device))
        goal, memory = begun.goal.contiguous(), begun.memory.contiguous()
        action, state = memory.new_zeros(n, drive.action.dim), _parts(physics)
        self._run_command = compile_kernel(self._command, (memory, action, *state), eager=not compiled)
        self._run_judge = compile_kernel(self._judge, (goal, *state), eager=not compiled)

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], physics: Physics
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n w"]]:
        """(targets of all servos, the control's next memory)."""
        ctrl, memory = self._run_command(memory, action, *_parts(physics))
        return ctrl, memory

    def judge(self, goal: Float[Tensor, "n g"], physics: Physics) -> Sequence[Tensor]:
        """(observation (n, o) float32, solved (n,) bool, sane (n,) bool, dense reward (n,) float32, lost (n,) bool)."""
        return self._run_judge(goal, *_parts(physics))

    def _command(self, memory: Tensor, action: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        ctrl, memory = self._drive.command(memory, action, self._drive.view(Physics(*state), memory))
        return ctrl, memory.clone()

    def _judge(self, goal: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        physics = Physics(*state)
        view = self._drive.view(physics, goal)
        obs = self._task.observe(view).to(torch.float32)
        # A comparison with NaN is false. Nothing of an arm's world moves that fast; what does is about to overflow.
        good = (physics.qvel.abs() < FASTEST).all(1) & torch.isfinite(physics.qpos).all(1) & torch.isfinite(obs).all(1)
        dense = torch.zeros_like(physics.qpos[:, 0])
        if self._dense:
            terms = self._task.terms(view)
            dense = torch.stack([weight * terms[name] for name, weight in self._task.weights.items()]).sum(0)
        lost = self._task.failed(view) if isinstance(self._task, CanFail) else torch.zeros_like(good)
        return obs, self._task.solved(view), good, dense.to(torch.float32), lost


def _parts(physics: Physics) -> tuple[Tensor, ...]:
    return physics.qpos, physics.qvel, physics.body_m, physics.body_quat, physics.touch_n
