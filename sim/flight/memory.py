"""What is carried from step to step besides the state, as rows: the policy's memory, then what is hidden from
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sim.engines.quad.craft import Four
from sim.engines.quad.layout import POS, VEL
from sim.flight.realism import Realism
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses
from sim.tasks.flight.protocol import FlightTask


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Rows of the memory; effects that are off have none."""

    seen: slice  # last actions, newest first; integral of the position error: shown to the policy
    task_state: slice  # the task's own: clock, counts
    last: slice  # the last action, where a cost asks for it
    queue: slice  # actions that are still under way, newest first
    positions: slice  # positions that sensors have not delivered yet, newest first
    velocities: slice  # velocities that sensors have not delivered yet, newest first
    gust: slice  # m/s, world
    used: slice  # charge, as a fraction
    bias: slice  # of the gyro, rad/s, body
    rows: int
    own_last: bool  # does the last action have rows of its own, for the policy does not see it?


def layout(task: FlightTask, senses: FlightSenses, realism: Realism) -> MemoryLayout:
    """The rows of this task, these senses and this realism."""
    own_last = 4 if task.w_action_rate > 0.0 and not senses.history else 0
    widths = (
        senses.memory_size, task.task_state_size, own_last, 4 * realism.latency_steps, 3 * realism.delay_steps,
        3 * realism.flow_steps, 3 * (realism.gust_m_s > 0.0), int(realism.battery_s > 0.0),
        3 * (realism.gyro_bias_rad_s > 0.0),
    )  # fmt: skip
    slices, at = [], 0
    for width in widths:
        slices.append(slice(at, at + width))
        at += width
    seen, task_state, last, queue, positions, velocities, gust, used, bias = slices
    shown = slice(0, 4) if senses.history else last
    return MemoryLayout(
        seen, task_state, shown, queue, positions, velocities, gust, used, bias, at, own_last > 0
    )


def blank_memory(num: int, hover: Four, senses: FlightSenses) -> Tensor:
    """The policy's part at the start of an episode: the action that hovers, no accumulated error."""
    still = torch.zeros(3 * senses.integral, num)
    return torch.cat([actions_of(hover, senses.history, num), still])


def actions_of(hover: Four, times: int, num: int) -> Tensor:
    """(4 times, n): the action that hovers, again and again."""
    return torch.tensor(hover).unsqueeze(1).repeat(times, num)


def hidden_start(
    state: Tensor,
    noise: Tensor | None,
    hover: Four,
    place: MemoryLayout,
    realism: Realism,
    task_state: Tensor,
) -> list[Tensor]:
    """The hidden rows at the start of an episode, from `task_state` on."""
    num = state.shape[1]
    still = actions_of(hover, place.own_last + realism.latency_steps, num)
    drawn = torch.zeros(realism.noise_size, num) if noise is None else noise[SENSED_SIZE:]
    late = [*[state[POS]] * realism.delay_steps, *[state[VEL]] * realism.flow_steps]
    return [task_state, still, *late, *realism.start(drawn), *realism.bias(drawn)]
