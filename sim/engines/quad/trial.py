"""A trial: whole episodes from given starts, recorded, for a policy or a classical controller alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.engines.quad.control.controllers import make_controller
from sim.engines.quad.craft import Craft
from sim.engines.quad.flights import Flights
from sim.engines.quad.rows import POS, QUAT, RATE, VEL
from sim.tasks.protocol import Flown

Pilot = Callable[[Flights], Float[Tensor, "4 n"]]  # motor commands in [-1, 1] from what can be seen


@dataclass(frozen=True, slots=True)
class Trial:
    """Recorded episodes; t = steps, n = drones. After a drone left the box its rows are NaN."""

    position_m: Float[Tensor, "t 3 n"]
    quat_wxyz: Float[Tensor, "t 4 n"]
    velocity_m_s: Float[Tensor, "t 3 n"]
    rate_rad_s: Float[Tensor, "t 3 n"]  # body frame
    rotor: Float[Tensor, "t 4 n"]  # commanded speeds, 0 ... 1
    goal_m: Float[Tensor, "t 3 n"]
    error_m: Float[Tensor, " k"]  # over the last seconds, of those that stayed; empty where the task has no such error
    left: Bool[Tensor, " n"]  # ended early
    held: Bool[Tensor, " n"]  # success: stayed, and close; or all waypoints reached, or the laps flown
    facts: dict[str, float | None] = field(default_factory=dict)  # the task's own figures
    external: Float[Tensor, "e n"] | None = None  # disturbance, and below it what the episodes are made of

    @property
    def action_change(self) -> float:
        """Mean |change| of a motor command, -1 ... 1, from one step to the next, of those that fly: how it chatters."""
        return 2.0 * float(self.rotor.diff(dim=0).abs().nanmean())


@torch.no_grad()
def fly(flights: Flights, pilot: Pilot) -> Trial:
    """Fly every lane of fresh `flights` for one whole episode."""
    columns: tuple[list[Tensor], ...] = ([], [], [], [], [], [], [], [])
    task = flights.task
    for _ in range(task.max_steps):
        action = pilot(flights)
        _, left = flights.advance(action)
        state, external, kept = flights.state, flights.external, flights.kept
        offset = task.relative(state, external, kept)[POS]
        values = (state[POS], state[QUAT], state[VEL], state[RATE], action, left, offset, kept)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    position, quat, velocity, rate, action, left_at, offset, kept_at = (torch.stack(column) for column in columns)
    gone = left_at.cummax(0).values
    score = task.score(Flown(offset, velocity, kept_at, gone))
    goal = position - offset
    position, quat, velocity, rate, rotor = (
        value.masked_fill(gone.unsqueeze(1), float("nan"))
        for value in (position, quat, velocity, rate, (0.5 * action + 0.5).clamp(0.0, 1.0))
    )
    return Trial(
        position, quat, velocity, rate, rotor, goal, score.error_m, score.ended, score.success, score.facts,
        flights.external,
    )  # fmt: skip


def policy_pilot(columns: Callable[[Tensor], Tensor]) -> Pilot:
    """A policy that maps observations (o, n) to actions (4, n)."""
    return lambda flights: columns(flights.obs)


def controller_pilot(name: str, craft: Craft, dt_s: float, num: int) -> Pilot:
    """A classical controller that follows the goal, on the same noisy position, velocity and rates; true attitude."""
    controller = make_controller(name, craft, dt_s)
    memory = torch.zeros(controller.memory_rows, num)

    def act(flights: Flights) -> Tensor:
        nonlocal memory
        command, memory = controller(flights.measured(), flights.reference(), memory)
        return 2.0 * command - 1.0

    return act
