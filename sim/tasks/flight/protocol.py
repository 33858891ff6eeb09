"""Protocol of a flight task. Everything is a pure function of rows, so it compiles with the physics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sim.engines.quad.craft import Craft, Four


class FlightTransition(NamedTuple):
    """One control step as a task sees it; columns are drones, states as in sim/engines/quad/layout.py."""

    before: Float[Tensor, "17 n"]
    after: Float[Tensor, "17 n"]
    action: Float[Tensor, "4 n"]  # in [-1, 1], as the policy gave it
    last: Float[Tensor, "4 n"] | None  # the action before it; None where nothing asks for it
    external: Float[Tensor, "e n"]  # the disturbance, and what the task's `start` wrote below it
    task_state_before: Float[Tensor, "k n"]  # the task's own rows before the step
    task_state: Float[Tensor, "k n"]  # ... after it
    hover: Four  # the action that hovers


class FlightStep(NamedTuple):
    """One step of episodes that are under way, for scoring them without a recording; n = drones."""

    offset_m: Float[Tensor, "3 n"]  # from the current goal
    task_state: Float[Tensor, "k n"]
    age: Int[Tensor, " n"]  # steps made, this one included
    left: Bool[Tensor, " n"]  # ended by this step


@dataclass(frozen=True, slots=True)
class FlightOutcome:
    """Whole recorded episodes, for scoring; t = steps, n = drones."""

    offset_m: Float[Tensor, "t 3 n"]  # from the current goal
    velocity_m_s: Float[Tensor, "t 3 n"]
    task_state: Float[Tensor, "t k n"]
    left: Bool[Tensor, "t n"]  # ended in this step, or later than that


@dataclass(frozen=True, slots=True)
class Score:
    """A task's verdict on recorded episodes."""

    error_m: Float[Tensor, " k"]  # of those that stayed, where a distance says something; else empty
    ended: Bool[Tensor, " n"]  # left the box, or crashed
    success: Bool[Tensor, " n"]
    facts: dict[str, float | None] = field(
        default_factory=dict
    )  # figures of this task alone; None: nobody got there


@runtime_checkable
class FlightTask(Protocol):
    """A task of the flight engine. `task_state` are rows that it carries from step to step: a clock, a count of
    gates.
    """

    @property
    def name(self) -> str: ...

    @property
    def dt_s(self) -> float: ...

    @property
    def max_steps(self) -> int:
        """Length of a measured episode."""
        ...

    @property
    def train_steps(self) -> int:
        """Length of a training flight."""
        ...

    @property
    def moves(self) -> bool:
        """True for a goal that moves or changes with time."""
        ...

    @property
    def w_action_rate(self) -> float: ...

    @property
    def start_numbers(self) -> int:
        """Number of uniform numbers that describe the start of an episode."""
        ...

    @property
    def task_state_size(self) -> int: ...

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Factors that bring what `view` returns to about one."""
        ...

    @property
    def units(self) -> tuple[str, str]:
        """Words with units for the numbers that `view` returns."""
        ...

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        """Middle of a picture [m, world] and its extent from there [m]."""
        ...

    def start(
        self, craft: Craft, unit: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """Start states, and their episodes' disturbances with what else the episode is made of below."""
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
        """Observations before and behind the policy's memory, from the measured state relative to the goal."""
        ...

    def measured(
        self, obs: Float[Tensor, "o n"], state: Tensor, external: Tensor, task_state: Tensor
    ) -> Tensor:
        """The state (17, n), its position, velocity and rates as observed: for classical controllers."""
        ...

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """Position, velocity, acceleration and yaw that a classical controller is to follow now."""
        ...

    def cost(self, transition: FlightTransition) -> Float[Tensor, " n"]: ...

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Reward of a step of this cost. After the end of a flight it is 0."""
        ...

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        """(has the episode ended, has a training flight), apart from the clock."""
        ...

    def score(self, flown: FlightOutcome) -> Score: ...

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """The one number, 0 at the start, that `verdict` has to know about the past."""
        ...

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """What `score` says, step by step: (success so far, error [m], infinite where there is none, or
        None).
        """
        ...
