"""The seam between tasks and what they command: an arm, a base, a hand. Whoever implements it runs in
`TaskVecEnv`.

A `Body` is chosen by task and options before there is a scene; wired into the compiled scene it is a `Drive`.
Which suite's tasks command which body stands in `sim.tasks.table.SUITES`.

Axes: n = worlds, k = some of them that start, a = action, w = memory, g = goal, nu = servos.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from robo_rl.core.spec import ActionSpec
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.tasks.scene_view import Places


@runtime_checkable
class SceneTask(Protocol):
    """What every task in a scene has. How it starts and what its expert does, its body asks for: see
    there.
    """

    name: str
    scene: str  # a file in sim/assets, or an absolute path
    max_steps: int
    hold_steps: int  # solved for so many steps in a row is success
    obs_parts: tuple[tuple[str, int, str], ...]  # (name, numbers, unit) of what `observe` returns, in order
    weights: Mapping[str, float]  # of the reward's terms

    def edit(self, spec: Any) -> None:
        """Turn the task's dials in the MJCF."""
        ...

    def observe(self, view: Any) -> Float[Tensor, "n o"]: ...

    def solved(self, view: Any) -> Bool[Tensor, " n"]: ...

    def terms(self, view: Any) -> dict[str, Float[Tensor, " n"]]:
        """What the dense reward adds up, by `weights`; each within [0, 1] or minus a distance [m]."""
        ...


@runtime_checkable
class CanFail(Protocol):
    """A task that can be lost before the clock runs out: a base that hits something, a thing that is
    dropped.
    """

    def failed(self, view: Any) -> Bool[Tensor, " n"]:
        """Ends the episode, without success."""
        ...


class Begun(NamedTuple):
    """How k episodes begin."""

    start: Start
    goal: Float[Tensor, "k g"]
    memory: Float[Tensor, "k w"]


@runtime_checkable
class Drive(Protocol):
    """Pure: what it remembers of a world is the caller's. Compiled with the task's own functions, so tensors
    only.
    """

    action: ActionSpec  # the whole of an action
    numbers: int  # uniform numbers that an episode's start takes
    cloud_m: tuple[
        tuple[float, float, float], tuple[float, float, float]
    ]  # clouds of points are kept within this box

    @property
    def wiring(self) -> Places:
        """Which columns of an engine's arrays are whose."""
        ...

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> Any:
        """What this body's tasks and their experts see."""
        ...

    def start(self, uniform: Float[Tensor, "k u"]) -> Begun:
        """uniform: in (0, 1)."""
        ...

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], view: Any
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n w"]]:
        """(targets of all servos, the next memory)."""
        ...

    def script(self, view: Any) -> Float[Tensor, "n b"]:
        """What the task's expert wants now, each number in [-1, 1]; noise is added to this."""
        ...

    def from_script(
        self, wanted: Float[Tensor, "n b"], view: Any, memory: Float[Tensor, "n w"]
    ) -> Float[Tensor, "n a"]:
        """Such a wish as an action, where `memory` is what `command` will be given with it."""
        ...


@runtime_checkable
class Body(Protocol):
    """What a task commands, before there is a scene."""

    @property
    def path(self) -> Path | None:
        """The MJCF or URDF that is put into the task's scene; None: the scene has it already."""
        ...

    def drive(self, scene: Scene, like: Tensor) -> Drive:
        """`like`: a tensor as the engine computes them. Raises ConfigError where body and task do not fit."""
        ...
