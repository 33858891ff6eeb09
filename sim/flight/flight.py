"""One control step of flight as one pure function: action -> rotors -> physics -> observation, cost, end.

Everything that a policy meets between two decisions is in here, so it compiles to one kernel and has one
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
    """Width of the observation."""
    return senses.memory_size + sum(map(len, task.scales))


def noise_size(realism: Realism | None = None) -> int:
    """Number of standard normal numbers that a step takes."""
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

    action: (4, n) in [-1, 1], of a `level` as in command.py. memory: rows as in memory.Layout. noise: (18 and
    what `realism` asks for, n) standard normal. left, far: (n,) 1.0 where the episode, where a training
    flight has ended. step: another engine's, in the place of `make_step`'s; at level=rates one of
    `inner_physics`. shifted: there is a seventh argument, (17, n), added to the state after the step: how
    another engine's differs. Raises ConfigError for physics or realism that the craft cannot have,
    UnknownNameError for a level.
    """
    real = realism or Realism()
    check_realism(real, craft)
    loops, physics = inner_physics(level, replace(physics, wind=physics.wind or real.gust_m_s > 0.0))
    command = make_command(level, craft, physics.dt_s)
    advance = make_advance(command, step or make_step(craft, physics), loops)
    place, hover = layout(task, senses, real), command.hover

    def flight(
        state: Tensor,
        memory: Tensor,
        action: Tensor,
        params: Tensor,
        external: Tensor,
        noise: Tensor,
        *shift: Tensor,
    ) -> tuple[Tensor, ...]:
        acting, power, air, hidden = _through_the_world(
            state, memory, action, external, noise, craft, place, real, task.dt_s
        )
        after = advance(state, acting, power, params, air)
        after = after + shift[0] if shifted else after
        task_state_before = memory[place.task_state]
        task_state = task.advance(state, after, external, task_state_before)
        last = memory[place.last] if task.w_action_rate > 0.0 else None
        transition = FlightTransition(
            state, after, action, last, external, task_state_before, task_state, hover
        )
        arrived, positions, velocities = _sensed(after, memory, place)
        seen = observe(
            task.relative(arrived, external, task_state), noise[:SENSED_SIZE] if senses.noise else None
        )
        remembered = remember(memory[place.seen], action, seen[POS], senses, task.dt_s)
        front, behind = task.view(seen, external, task_state)
        left, far = (ended.to(after.dtype) for ended in task.over(transition))
        own_last = [action] if place.own_last else []
        rows = torch.cat(
            [
                remembered,
                task_state,
                *own_last,
                hidden[0],
                positions,
                velocities,
                *hidden[1:],
                memory[place.bias],
            ]
        )
        return after, rows, torch.cat([front, remembered, behind]), task.cost(transition), left, far

    return flight


def _through_the_world(
    state: Tensor, memory: Tensor, action: Tensor, external: Tensor, noise: Tensor,
    craft: Craft, place: MemoryLayout, real: Realism, dt_s: float,
) -> tuple[Tensor, Tensor | None, Tensor, list[Tensor]]:  # fmt: skip
    """(action that acts now, share of the battery's voltage or None, disturbance with gusts, hidden rows
    after it).

    The hidden rows: queue, gust, charge.
    """
    queue = memory[place.queue]
    acting = queue[-4:] if real.latency_steps else action
    hidden = [torch.cat([action, queue[:-4]]) if real.latency_steps else queue]
    power, air = None, external[:EXTERNAL_SIZE]
    drawn = noise[SENSED_SIZE:]
    if real.gust_m_s > 0.0:
        gust = next_gust(memory[place.gust], drawn[0:3], real.gust_m_s, dt_s)
        air = torch.cat([external[: WIND.start], external[WIND] + gust])
        hidden.append(gust)
    if real.battery_s > 0.0:
        used = memory[place.used]
        power = voltage_share(used)
        hidden.append(charge_used(used, state[ROTOR], craft, real.battery_s, dt_s))
    return acting, power, air, hidden


def inner_physics(level: CommandLevel, physics: QuadPhysics) -> tuple[int, QuadPhysics]:
    """(how often in a control step the rotors are told anew, the physics of one of these parts)."""
    if level.name == "motors":
        return 1, physics
    return physics.substeps, replace(physics, dt_s=physics.dt_s / physics.substeps, substeps=1)


def make_advance(command: Command, step: Step, loops: int) -> Callable[..., Tensor]:
    """advance(state, action, voltage share or None, params, air) -> the state after `loops` parts of a
    control step.
    """

    def advance(state: Tensor, action: Tensor, power: Tensor | None, params: Tensor, air: Tensor) -> Tensor:
        for _ in range(loops):
            rotors = command.rotors(state, action)
            # A motor turns in proportion to its voltage, and its command is the battery's share that it is
            # given.
            state = step(state, rotors if power is None else rotors.clamp(0.0, 1.0) * power, params, air)
        return state

    return advance


def _sensed(after: Tensor, memory: Tensor, place: MemoryLayout) -> tuple[Tensor, Tensor, Tensor]:
    """(the state as sensors tell it before their noise; positions and velocities that are still under
    way).
    """
    position, positions = _late(after[POS], memory[place.positions])
    velocity, velocities = _late(after[VEL], memory[place.velocities])
    if place.positions.start == place.positions.stop and place.velocities.start == place.velocities.stop:
        return _biased(after, memory[place.bias]), positions, velocities
    told = torch.cat([position, after[QUAT], velocity, after[RATE.start :]])
    return _biased(told, memory[place.bias]), positions, velocities


def _late(now: Tensor, under_way: Tensor) -> tuple[Tensor, Tensor]:
    """(what has arrived, what is still under way)."""
    if not len(under_way):
        return now, under_way
    return under_way[-3:], torch.cat([now, under_way[:-3]])


def _biased(state: Tensor, bias: Tensor) -> Tensor:
    """The state with the bias of the gyro added to its rates."""
    return torch.cat([state[: RATE.start], state[RATE] + bias, state[RATE.stop :]]) if len(bias) else state


def first_sight(
    state: Tensor, external: Tensor, noise: Tensor | None, hover: Four, task: FlightTask, senses: FlightSenses,
    realism: Realism | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(memory, observation) at the start of an episode. hover: the action that hovers."""
    real = realism or Realism()
    remembered, task_state = blank_memory(state.shape[1], hover, senses), task.first(external)
    heard = noise if noise is None or senses.noise else None
    place = layout(task, senses, real)
    hidden = hidden_start(state, noise, hover, place, real, task_state)
    memory = torch.cat([remembered, *hidden])
    told = _biased(state, memory[place.bias])
    seen = observe(task.relative(told, external, task_state), None if heard is None else heard[:SENSED_SIZE])
    front, behind = task.view(seen, external, task_state)
    return memory, torch.cat([front, remembered, behind])
