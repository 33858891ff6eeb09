"""What a step of manipulation computes beside physics, as two pure functions that a compiler can fuse.

command: from actions to the targets of all servos.   judge: from states to observation, success and reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sim.arms.control import Control
from sim.engines.protocol import Physics
from sim.kernels import compile_kernel
from sim.tasks.manipulation import ManipulationTask, View, Wiring

FASTEST = 1e3  # m/s or rad/s


class TaskKernels:
    """Both functions of one task, arm and control, for n worlds. `dense`: is the reward made of terms at all?"""

    def __init__(
        self, task: ManipulationTask, wiring: Wiring, control: Control, physics: Physics, *, dense: bool, compiled: bool
    ) -> None:
        self._task, self._wiring, self._control, self._dense = task, wiring, control, dense
        n, q_rad = len(physics.qpos), physics.qpos[:, wiring.arm]
        tool, _ = wiring.chain.place(q_rad)
        middle = torch.full((n, task.numbers), 0.5, device=q_rad.device)
        goal = task.start(middle, q_rad, tool, wiring)[1].contiguous()
        memory = control.begin(q_rad, tool).contiguous()
        action = q_rad.new_zeros(n, control.action.dim + int(task.grips))
        state = _parts(physics)
        self._run_command = compile_kernel(self._command, (memory, action, *state), eager=not compiled)
        self._run_judge = compile_kernel(self._judge, (goal, *state), eager=not compiled)

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], physics: Physics
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n w"]]:
        """(targets of all servos, the control's next memory)."""
        ctrl, memory = self._run_command(memory, action, *_parts(physics))
        return ctrl, memory

    def judge(self, goal: Float[Tensor, "n g"], physics: Physics) -> Sequence[Tensor]:
        """(observation (n, o) float32, solved (n,) bool, sane (n,) bool, dense reward (n,) float32)."""
        return self._run_judge(goal, *_parts(physics))

    def _command(self, memory: Tensor, action: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        wiring, view = self._wiring, View(Physics(*state), self._wiring, memory)
        target, memory = self._control.command(memory, action, view.q_rad, view.tool, view.links)
        ctrl = target.new_zeros(len(target), wiring.scene.model.nu)
        ctrl[:, wiring.servos] = target
        if self._task.grips:
            ctrl[:, wiring.grips] = 0.5 * (action[:, -1:] + 1.0) * wiring.robot.open_m
        return ctrl, memory.clone()

    def _judge(self, goal: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        physics = Physics(*state)
        view = View(physics, self._wiring, goal)
        obs = self._task.observe(view).to(torch.float32)
        # A comparison with NaN is false. Nothing of an arm's world moves that fast; what does is about to overflow.
        good = (physics.qvel.abs() < FASTEST).all(1) & torch.isfinite(physics.qpos).all(1) & torch.isfinite(obs).all(1)
        dense = torch.zeros_like(physics.qpos[:, 0])
        if self._dense:
            terms = self._task.terms(view)
            dense = torch.stack([weight * terms[name] for name, weight in self._task.weights.items()]).sum(0)
        return obs, self._task.solved(view), good, dense.to(torch.float32)


def _parts(physics: Physics) -> tuple[Tensor, ...]:
    return physics.qpos, physics.qvel, physics.body_m, physics.body_quat, physics.touch_n
