"""Memory of a flight besides its state: the part that the policy observes, then the hidden part."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.engines.quad.craft import Four
from sim.engines.quad.layout import POS, VEL, constants
from sim.flight.realism import Realism
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses
from sim.tasks.flight.protocol import FlightTask


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Slices of the memory along its first axis; effects that are off have empty ones."""

    seen: slice  # observed by the policy: last actions, newest first; integral of the position error
    task_state: slice  # clock, counts
    last: slice  # the last action, where a cost needs it
    queue: slice  # actions that have not taken effect yet, newest first
    positions: slice  # positions that sensors have not delivered yet, newest first
    velocities: slice  # velocities that sensors have not delivered yet, newest first
    gust: slice  # velocity of the gust [m/s, world]
    used: slice  # used charge of the battery, as a fraction
    bias: slice  # bias of the gyro [rad/s, body]
    size: int
    own_last: bool  # True where the last action is stored separately, because the policy does not observe it


def layout(task: FlightTask, senses: FlightSenses, realism: Realism) -> MemoryLayout:
    """The memory layout of a task with these senses and this realism."""
    own_last = 4 if task.w_action_rate > 0.0 and not senses.history else 0
    widths = (
        senses.memory_size, task.task_state_size, own_last, 4 * realism.latency_steps,
        3 * realism.delay_steps,
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


def blank_memory(num: int, hover: Four, senses: FlightSenses, device: torch.device | str = "cpu") -> Tensor:
    """The policy's part at the start of an episode: hover actions, zero integral."""
    still = torch.zeros(3 * senses.integral, num, device=device)
    return torch.cat([actions_of(hover, senses.history, still), still])


def actions_of(hover: Four, times: int, like: Float[Tensor, "k n"]) -> Float[Tensor, "a n"]:
    """The hover action, repeated: a = 4 times."""
    return constants(hover, like).repeat(times, like.shape[1])


def hidden_start(
    state: Tensor,
    noise: Tensor | None,
    hover: Four,
    place: MemoryLayout,
    realism: Realism,
    task_state: Tensor,
) -> list[Tensor]:
    """The hidden part at the start of an episode: everything from `task_state` on."""
    still = actions_of(hover, place.own_last + realism.latency_steps, state)
    drawn = state.new_zeros(realism.noise_size, state.shape[1]) if noise is None else noise[SENSED_SIZE:]
    late = [*[state[POS]] * realism.delay_steps, *[state[VEL]] * realism.flow_steps]
    return [task_state, still, *late, *realism.start(drawn), *realism.bias(drawn)]
