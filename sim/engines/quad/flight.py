"""One control step of flight as one pure function: action -> motors -> physics -> observation, cost, end.

Everything that a policy meets between two decisions is in here, so it compiles to one kernel and has one gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import Physics, Step, make_step
from sim.engines.quad.rows import EXTERNAL_ROWS, POS, QUAT, RATE, VEL
from sim.tasks.hover import HoverTask

SEEN_ROWS = 18  # position 3, rotation matrix 9, velocity 3, rates 3
OBS_NOISE = (1e-3, 1e-3, 2e-3, 2e-3)  # standard deviations of position, rotation matrix, velocity and rates


@dataclass(frozen=True, slots=True)
class Senses:
    """What the policy sees besides position, rotation matrix, velocity and rates."""

    history: int = 8  # last actions
    integral: bool = True  # integral of the position error: what removes the error under a constant force
    integral_limit: float = 0.1  # m s
    noise: bool = True  # sensors are noisy

    @property
    def memory_rows(self) -> int:
        return 4 * self.history + 3 * self.integral

    @property
    def obs_rows(self) -> int:
        return SEEN_ROWS + self.memory_rows


FlightFn = Callable[..., tuple[Tensor, ...]]


def make_flight(craft: Craft, physics: Physics, task: HoverTask, senses: Senses, step: Step | None = None) -> FlightFn:
    """flight(state, memory, action, params, external, noise) -> (state, memory, obs, cost, left, far).

    action: (4, n) in [-1, 1], motor commands over the whole range of the rotors. memory: what the policy remembers,
    last actions first. noise: (18, n) standard normal, of the observation. left, far: (n,) 1.0 outside the task's box,
    outside the wider one of training. step: another engine's, in the place of `make_step`'s.
    """
    step = make_step(craft, physics) if step is None else step
    hover = 2.0 * craft.hover_speed - 1.0

    def flight(
        state: Tensor, memory: Tensor, action: Tensor, params: Tensor, external: Tensor, noise: Tensor
    ) -> tuple[Tensor, ...]:
        after = step(state, 0.5 * action + 0.5, params, external[:EXTERNAL_ROWS])
        # A task whose goal moves keeps the clock in memory's last row; the others never look at it.
        time_s = memory[-1] + task.dt_s if task.moves else torch.zeros_like(state[0])
        seen_from_goal = task.relative(after, external, time_s)
        cost = sum(task.terms(seen_from_goal, action, hover).values())
        seen = observe(seen_from_goal, noise if senses.noise else None)
        kept = remember(memory[: senses.memory_rows], action, seen[POS], senses, task.dt_s)
        obs = torch.cat([seen, kept, *task.ahead(external, time_s)])
        assert isinstance(cost, Tensor)
        left, far = (task.outside(seen_from_goal, box).to(after.dtype) for box in (task.box_m, task.train_box_m))
        return after, torch.cat([kept, time_s.unsqueeze(0)]) if task.moves else kept, obs, cost, left, far

    return flight


def first_sight(
    state: Tensor, external: Tensor, noise: Tensor | None, craft: Craft, task: HoverTask, senses: Senses
) -> tuple[Tensor, Tensor]:
    """(memory, observation) at the start of an episode."""
    num = state.shape[1]
    kept, time_s = blank_memory(num, craft, senses), torch.zeros(num)
    seen = observe(task.relative(state, external, time_s), noise)
    obs = torch.cat([seen, kept, *task.ahead(external, time_s)])
    return torch.cat([kept, time_s.unsqueeze(0)]) if task.moves else kept, obs


def observe(state: Tensor, noise: Tensor | None) -> Tensor:
    """(18, n): position [m], rotation matrix (rows), velocity [m/s, world], rates [rad/s, body], with sensor noise."""
    seen = torch.cat([state[POS], rotation_matrix(state[QUAT]), state[VEL], state[RATE]])
    if noise is None:
        return seen
    std = noise.new_tensor([s for s, rows in zip(OBS_NOISE, (3, 9, 3, 3), strict=True) for _ in range(rows)])
    return seen + std[:, None] * noise


def remember(memory: Tensor, action: Tensor, position_m: Tensor, senses: Senses, dt_s: float) -> Tensor:
    """The newest action in front, the oldest forgotten; the integral of the position error, kept within its limit."""
    actions = torch.cat([action, memory[: 4 * senses.history - 4]]) if senses.history else memory[:0]
    if not senses.integral:
        return actions
    limit = senses.integral_limit
    return torch.cat([actions, (memory[-3:] + dt_s * position_m).clamp(-limit, limit)])


def rotation_matrix(quat: Tensor) -> Tensor:
    """(9, n) row by row, from wxyz (4, n)."""
    w, x, y, z = quat.unbind(0)
    return torch.stack([
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ])  # fmt: skip


def blank_memory(num: int, craft: Craft, senses: Senses) -> Tensor:
    """Memory at the start of an episode: the action that hovers, no accumulated error."""
    memory = torch.full((senses.memory_rows, num), 2.0 * craft.hover_speed - 1.0)
    if senses.integral:
        memory[-3:] = 0.0
    return memory
