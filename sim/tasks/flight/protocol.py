"""Protocol of a flight task: pure functions of tensors (component, drone), so that it compiles with the
physics.

Letters in shapes: n drones, t steps, e numbers that describe an episode, k numbers of the task state, o width
of the observation, u uniform random numbers of a start. States are (17, n) as in sim/engines/quad/layout.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int
from sim.engines.quad.craft import Craft, Four


class FlightTransition(NamedTuple):
    """One control step, as cost and end of an episode are judged from it."""

    before: Float[Tensor, "17 n"]
    after: Float[Tensor, "17 n"]
    action: Float[Tensor, "4 n"]  # in [-1, 1], as the policy gave it
    last: Float[Tensor, "4 n"] | None  # the previous action; None for tasks without a cost of its change
    external: Float[Tensor, "e n"]  # the disturbance, then what the task's `start` appended to it
    task_state_before: Float[Tensor, "k n"]
    task_state: Float[Tensor, "k n"]  # after the step
    hover: Four  # the action that hovers


class FlightStep(NamedTuple):
    """One step of running episodes, for scoring them without a recording."""

    offset_m: Float[Tensor, "3 n"]  # from the current goal
    task_state: Float[Tensor, "k n"]
    age: Int[Tensor, " n"]  # steps since the start, this one included
    left: Bool[Tensor, " n"]  # ended by this step


@dataclass(frozen=True, slots=True)
class FlightOutcome:
    """Complete recorded episodes, for scoring."""

    offset_m: Float[Tensor, "t 3 n"]  # from the current goal
    velocity_m_s: Float[Tensor, "t 3 n"]
    task_state: Float[Tensor, "t k n"]
    left: Bool[Tensor, "t n"]  # the episode ended in this step or before it


@dataclass(frozen=True, slots=True)
class Score:
    """Score of recorded episodes."""

    error_m: Float[Tensor, " k"]  # of the episodes that did not end early; empty for tasks without an error
    ended: Bool[Tensor, " n"]  # left the box, or crashed
    success: Bool[Tensor, " n"]
    # Measurements of this task alone; None where no episode got far enough to have one.
    facts: dict[str, float | None] = field(default_factory=dict)


@runtime_checkable
class FlightTask(Protocol):
    """A task of the flight engine. Its task state is carried from step to step: a clock, a count of gates."""

    @property
    def name(self) -> str: ...

    @property
    def dt_s(self) -> float:
        """Control period."""
        ...

    @property
    def max_steps(self) -> int:
        """Number of steps of a measured episode."""
        ...

    @property
    def train_steps(self) -> int:
        """Number of steps of a training flight."""
        ...

    @property
    def moves(self) -> bool:
        """True for a goal that moves or changes with time."""
        ...

    @property
    def w_action_rate(self) -> float:
        """Weight of the squared change of the action; above 0 the previous action is kept for it."""
        ...

    @property
    def start_numbers(self) -> int:
        """Number of uniform numbers that describe the start of an episode."""
        ...

    @property
    def task_state_size(self) -> int:
        """Number of components of the task state."""
        ...

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Factors that scale both parts of `view` to about one."""
        ...

    @property
    def units(self) -> tuple[str, str]:
        """Descriptions with units of both parts of `view`."""
        ...

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        """Middle of a rendered picture [m, world] and its extent from there [m]."""
        ...

    @property
    def floor_m(self) -> float | None:
        """Height of the floor of the task's room [m, world]; None: a task without a room."""
        ...

    def start(
        self, craft: Craft, uniform: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """Start states, and per episode the disturbance (9 components), then whatever else describes it."""
        ...

    def first(self, external: Float[Tensor, "e n"]) -> Float[Tensor, "k n"]:
        """`task_state` at the start of an episode."""
        ...

    def advance(
        self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor
    ) -> Float[Tensor, "k n"]:
        """`task_state` after a step."""
        ...

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Float[Tensor, "17 n"]:
        """The state as seen from the current goal, in axes of the world."""
        ...

    def view(
        self, seen: Float[Tensor, "18 n"], external: Tensor, task_state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Observations before and behind the policy's memory.

        seen: measured position relative to the goal [m], rotation matrix (body -> world, row by row),
        velocity [m/s, world] and rates [rad/s, body], as `flight.observe` returns them.
        """
        ...

    def measured(
        self, obs: Float[Tensor, "o n"], state: Tensor, external: Tensor, task_state: Tensor
    ) -> Tensor:
        """The state (17, n) with position, velocity and rates as observed, for classical controllers."""
        ...

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """Reference of a controller: position [m], velocity, acceleration (SI, world) and yaw [rad]."""
        ...

    def cost(self, transition: FlightTransition) -> Float[Tensor, " n"]:
        """Cost of the step, differentiable with respect to states and actions."""
        ...

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Reward of a step with this cost. After the end of a flight it is 0."""
        ...

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        """Masks (measured episodes that ended, training flights that ended), without those that timed out."""
        ...

    def score(self, flown: FlightOutcome) -> Score:
        """Success and error of recorded episodes."""
        ...

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """Running total of an episode, 0 at its start: all that `verdict` has to know about the past."""
        ...

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Result of `score` step by step: (success so far, error [m]).

        The error is infinite where there is none yet, and None for tasks without an error.
        """
        ...
