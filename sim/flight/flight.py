"""One control step of flight as a pure function: action -> rotors -> physics -> observation, cost, end.

Everything between two actions of a policy is in this function, so it compiles to one kernel with one
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from sim.engines.quad.craft import Craft, Four
from sim.engines.quad.dynamics import QuadPhysics, Step, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, QUAT, RATE, ROTOR, VEL, WIND
from sim.flight.command import ON_MOTORS, Command, CommandLevel, make_command
from sim.flight.memory import MemoryLayout, blank_memory, hidden_start, layout
from sim.flight.realism import Realism, charge_used, check_realism, next_gust, voltage_share
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses, observe, remember
from sim.tasks.flight.protocol import FlightTask, FlightTransition

FlightFn = Callable[..., tuple[Tensor, ...]]


def obs_size(task: FlightTask, senses: FlightSenses) -> int:
    """Width of the observation of a task."""
    return senses.memory_size + sum(map(len, task.scales))


def noise_size(realism: Realism | None = None) -> int:
    """Number of standard normal numbers of a step, per drone."""
    return SENSED_SIZE + (0 if realism is None else realism.noise_size)


def make_flight(
    craft: Craft,
    physics: QuadPhysics,
    task: FlightTask,
    senses: FlightSenses,
    realism: Realism | None = None,
    step: Step | None = None,
    level: CommandLevel = ON_MOTORS,
    shifted: bool = False,
) -> FlightFn:
    """flight(state, memory, action, params, external, noise) -> (state, memory, obs, cost, left, far).

    action: (4, n) in [-1, 1], of a `level` as in command.py. memory: (m, n) as in memory.MemoryLayout. noise:
    (noise_size(realism), n) standard normal. left, far: (n,) 1.0 where a measured episode ended, and where a
    training flight ended. step: step of another engine instead of `make_step`'s; at level=rates with the
    physics of `inner_physics`. shifted: adds a seventh argument (17, n), which is added to the state after
    the step, such as the difference of another engine's state. Raises ConfigError for physics or realism that
    the craft does not support, UnknownNameError for an unknown level.
    """
    real = realism or Realism()
    check_realism(real, craft)
    loops, physics = inner_physics(level, replace(physics, wind=physics.wind or real.gust_m_s > 0.0))
    command = make_command(level, craft, physics.dt_s)
    advance = make_advance(command, step or make_step(craft, physics), loops)
    slots, hover = layout(task, senses, real), command.hover

    def flight(
        state: Tensor,
        memory: Tensor,
        action: Tensor,
        params: Tensor,
        external: Tensor,
        noise: Tensor,
        *shift: Tensor,
    ) -> tuple[Tensor, ...]:
        acting, power, air, hidden = _apply_realism(
            state, memory, action, external, noise, craft, slots, real, task.dt_s
        )
        after = advance(state, acting, power, params, air)
        after = after + shift[0] if shifted else after
        task_state_before = memory[slots.task_state]
        task_state = task.advance(state, after, external, task_state_before)
        last = memory[slots.last] if task.w_action_rate > 0.0 else None
        transition = FlightTransition(
            state, after, action, last, external, task_state_before, task_state, hover
        )
        arrived, positions, velocities = _sense(after, memory, slots)
        seen = observe(
            task.relative(arrived, external, task_state), noise[:SENSED_SIZE] if senses.noise else None
        )
        remembered = remember(memory[slots.seen], action, seen[POS], senses, task.dt_s)
        front, behind = task.view(seen, external, task_state)
        left, far = (ended.to(after.dtype) for ended in task.over(transition))
        own_last = [action] if slots.own_last else []
        next_memory = torch.cat(
            [
                remembered,
                task_state,
                *own_last,
                hidden[0],
                positions,
                velocities,
                *hidden[1:],
                memory[slots.bias],
            ]
        )
        return after, next_memory, torch.cat([front, remembered, behind]), task.cost(transition), left, far

    return flight


def _apply_realism(
    state: Tensor, memory: Tensor, action: Tensor, external: Tensor, noise: Tensor,
    craft: Craft, slots: MemoryLayout, real: Realism, dt_s: float,
) -> tuple[Tensor, Tensor | None, Tensor, list[Tensor]]:  # fmt: skip
    """Latency, gusts and battery of one step.

    Returns (action that takes effect now, share of the full battery's voltage or None, disturbance with
    gusts, updated hidden parts of the memory: queue, gust, charge).
    """
    queue = memory[slots.queue]
    acting = queue[-4:] if real.latency_steps else action
    hidden = [torch.cat([action, queue[:-4]]) if real.latency_steps else queue]
    power, air = None, external[:EXTERNAL_SIZE]
    drawn = noise[SENSED_SIZE:]
    if real.gust_m_s > 0.0:
        gust = next_gust(memory[slots.gust], drawn[0:3], real.gust_m_s, dt_s)
        air = torch.cat([external[: WIND.start], external[WIND] + gust])
        hidden.append(gust)
    if real.battery_s > 0.0:
        used = memory[slots.used]
        power = voltage_share(used)
        hidden.append(charge_used(used, state[ROTOR], craft, real.battery_s, dt_s))
    return acting, power, air, hidden


def inner_physics(level: CommandLevel, physics: QuadPhysics) -> tuple[int, QuadPhysics]:
    """Returns (number of rotor commands per control step, physics of the time between two of them)."""
    if level.name == "motors":
        return 1, physics
    return physics.substeps, replace(physics, dt_s=physics.dt_s / physics.substeps, substeps=1)


def make_advance(command: Command, step: Step, loops: int) -> Callable[..., Tensor]:
    """advance(state, action, voltage share or None, params, air) -> state after `loops` rotor commands."""

    def advance(state: Tensor, action: Tensor, power: Tensor | None, params: Tensor, air: Tensor) -> Tensor:
        for _ in range(loops):
            rotors = command.rotors(state, action)
            # A motor's speed is proportional to its voltage, and its command is a share of the battery's.
            state = step(state, rotors if power is None else rotors.clamp(0.0, 1.0) * power, params, air)
        return state

    return advance


def _sense(after: Tensor, memory: Tensor, slots: MemoryLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Delay and bias of the sensors.

    Returns (state as measured without noise, queue of positions, queue of velocities).
    """
    position, positions = _delayed(after[POS], memory[slots.positions])
    velocity, velocities = _delayed(after[VEL], memory[slots.velocities])
    if slots.positions.start == slots.positions.stop and slots.velocities.start == slots.velocities.stop:
        return _biased(after, memory[slots.bias]), positions, velocities
    measured = torch.cat([position, after[QUAT], velocity, after[RATE.start :]])
    return _biased(measured, memory[slots.bias]), positions, velocities


def _delayed(now: Tensor, queue: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (the oldest value of the queue, the queue with the newest value in front)."""
    if not len(queue):
        return now, queue
    return queue[-3:], torch.cat([now, queue[:-3]])


def _biased(state: Tensor, bias: Tensor) -> Tensor:
    """The state with the bias of the gyro added to its rates."""
    return torch.cat([state[: RATE.start], state[RATE] + bias, state[RATE.stop :]]) if len(bias) else state


def first_observation(
    state: Tensor, external: Tensor, noise: Tensor | None, hover: Four, task: FlightTask,
    senses: FlightSenses, realism: Realism | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns (memory, observation) at the start of an episode. hover: the action that hovers."""
    real = realism or Realism()
    remembered, task_state = blank_memory(state.shape[1], hover, senses, state.device), task.first(external)
    slots = layout(task, senses, real)
    hidden = hidden_start(state, noise, hover, slots, real, task_state)
    memory = torch.cat([remembered, *hidden])
    measured = _biased(state, memory[slots.bias])
    sensor_noise = noise[:SENSED_SIZE] if noise is not None and senses.noise else None
    seen = observe(task.relative(measured, external, task_state), sensor_noise)
    front, behind = task.view(seen, external, task_state)
    return memory, torch.cat([front, remembered, behind])
