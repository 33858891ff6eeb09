"""Trials: complete recorded episodes from given starts, for policies and for classical controllers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, QUAT, RATE, ROTOR, VEL
from sim.flight.control.controllers import make_controller
from sim.flight.flights import Flights
from sim.tasks.flight.protocol import FlightOutcome

Pilot = Callable[[Flights], Float[Tensor, "4 n"]]  # flights -> actions in [-1, 1]


@dataclass(frozen=True, slots=True)
class Trial:
    """Recorded episodes; t = steps, n = drones. Values after the end of an episode are NaN."""

    position_m: Float[Tensor, "t 3 n"]
    quat_wxyz: Float[Tensor, "t 4 n"]
    velocity_m_s: Float[Tensor, "t 3 n"]
    rate_rad_s: Float[Tensor, "t 3 n"]  # body frame
    # Rotor speeds, 0 ... 1: the commands at level=motors, the actual speeds at level=rates.
    rotor: Float[Tensor, "t 4 n"]
    goal_m: Float[Tensor, "t 3 n"]
    error_m: Float[Tensor, " k"]  # of the drones that stayed; empty for tasks without an error
    left: Bool[Tensor, " n"]  # ended early
    held: Bool[Tensor, " n"]  # success, as the task defines it
    facts: dict[str, float | None] = field(default_factory=dict)  # measurements of this task alone
    external: Float[Tensor, "e n"] | None = None  # disturbance, then what else describes the episodes
    action_change: float = 0.0  # mean absolute change of an action component per step in flight: chatter


@torch.no_grad()
def fly(flights: Flights, pilot: Pilot) -> Trial:
    """Fly every lane of fresh `flights` for one complete episode."""
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
    """Pilot of a policy that maps observations (o, n) to actions (4, n)."""
    return lambda flights: columns(flights.obs)


def controller_pilot(name: str, craft: Craft, dt_s: float, num: int, level: str = "motors") -> Pilot:
    """Pilot of a classical controller, with measured position, velocity and rates and true attitude."""
    controller = make_controller(name, craft, dt_s, level=level)
    memory = torch.zeros(controller.memory_size, num)

    def act(flights: Flights) -> Tensor:
        nonlocal memory
        command, memory = controller(flights.measured(), flights.reference(), memory)
        return flights.command.normalized(command)

    return act
