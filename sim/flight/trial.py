"""A trial: whole episodes from given starts, recorded, for a policy or a classical controller alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, QUAT, RATE, ROTOR, VEL
from sim.flight.control.controllers import make_controller
from sim.flight.flights import Flights
from sim.tasks.flight.protocol import FlightOutcome

Pilot = Callable[[Flights], Float[Tensor, "4 n"]]  # actions in [-1, 1] from what can be seen


@dataclass(frozen=True, slots=True)
class Trial:
    """Recorded episodes; t = steps, n = drones. After a drone left the box its rows are NaN."""

    position_m: Float[Tensor, "t 3 n"]
    quat_wxyz: Float[Tensor, "t 4 n"]
    velocity_m_s: Float[Tensor, "t 3 n"]
    rate_rad_s: Float[Tensor, "t 3 n"]  # body frame
    rotor: Float[
        Tensor, "t 4 n"
    ]  # speeds, 0 ... 1: as commanded, or what the craft's own rate loop made of them
    goal_m: Float[Tensor, "t 3 n"]
    error_m: Float[
        Tensor, " k"
    ]  # over the last seconds, of those that stayed; empty where the task has no such error
    left: Bool[Tensor, " n"]  # ended early
    held: Bool[Tensor, " n"]  # success: stayed, and close; or all waypoints reached, or the laps flown
    facts: dict[str, float | None] = field(default_factory=dict)  # the task's own figures
    external: Float[Tensor, "e n"] | None = None  # disturbance, and below it what the episodes are made of
    action_change: float = (
        0.0  # mean |change| of a number of the action, -1 ... 1, of those that fly: how it chatters
    )


@torch.no_grad()
def fly(flights: Flights, pilot: Pilot) -> Trial:
    """Fly every lane of fresh `flights` for one whole episode."""
    columns: tuple[list[Tensor], ...] = ([], [], [], [], [], [], [], [], [])
    task = flights.task
    for _ in range(task.max_steps):
        action = pilot(flights)
        _, left = flights.advance(action)
        state, external, task_state = flights.state, flights.external, flights.task_state
        offset = task.relative(state, external, task_state)[POS]
        turning = state[ROTOR] if flights.command.loops else 0.5 * action + 0.5
        values = (state[POS], state[QUAT], state[VEL], state[RATE], turning, action, left, offset, task_state)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    position, quat, velocity, rate, rotor, action, left_at, offset, task_state_at = (
        torch.stack(column) for column in columns
    )
    gone = left_at.cummax(0).values
    score = task.score(FlightOutcome(offset, velocity, task_state_at, gone))
    goal = position - offset
    position, quat, velocity, rate, rotor, action = (
        value.masked_fill(gone.unsqueeze(1), float("nan"))
        for value in (position, quat, velocity, rate, rotor.clamp(0.0, 1.0), action.clamp(-1.0, 1.0))
    )
    return Trial(
        position, quat, velocity, rate, rotor, goal, score.error_m, score.ended, score.success, score.facts,
        flights.external, float(action.diff(dim=0).abs().nanmean()),
    )  # fmt: skip


def policy_pilot(columns: Callable[[Tensor], Tensor]) -> Pilot:
    """A policy that maps observations (o, n) to actions (4, n)."""
    return lambda flights: columns(flights.obs)


def controller_pilot(name: str, craft: Craft, dt_s: float, num: int, level: str = "motors") -> Pilot:
    """A classical controller that follows the goal, on the same noisy position, velocity and rates; true
    attitude.
    """
    controller = make_controller(name, craft, dt_s, level=level)
    memory = torch.zeros(controller.memory_size, num)

    def act(flights: Flights) -> Tensor:
        nonlocal memory
        command, memory = controller(flights.measured(), flights.reference(), memory)
        return flights.command.normalized(command)

    return act
