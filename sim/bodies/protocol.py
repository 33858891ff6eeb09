"""Protocols between tasks and the bodies they command: an arm, a base, a hand. `TaskVecEnv` runs any of them.

Task and options choose a `Body` before there is a scene; its `drive` on the compiled scene is a `Drive`.
`sim.tasks.table.SUITES` says which suite's tasks command which body.

Axes: n = worlds, k = some of them that start, a = action, w = memory, g = goal, nu = servos.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from robo_rl.core.spec import ActionSpec
from sim.bodies.scene_view import SceneColumns
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene

CONTROL_HZ, SUBSTEPS = 20.0, 10  # decisions per second, and steps of physics in each


@runtime_checkable
class SceneTask(Protocol):
    """Members of every task in a scene. Bodies add what they need: how an episode starts, and the expert."""

    name: str
    scene: str  # a file in sim/assets, or an absolute path
    max_steps: int
    hold_steps: int  # success: solved for this many steps in a row
    obs_parts: tuple[tuple[str, int, str], ...]  # (name, numbers, unit) of what `observe` returns, in order
    weights: Mapping[str, float]  # of the terms of the reward

    def edit(self, spec: Any) -> None:
        """Write the task's options into the MJCF."""
        ...

    def observe(self, view: Any) -> Float[Tensor, "n o"]: ...

    def solved(self, view: Any) -> Bool[Tensor, " n"]: ...

    def terms(self, view: Any) -> dict[str, Float[Tensor, " n"]]:
        """Terms of the dense reward, summed with `weights`; each within [0, 1] or minus a distance [m]."""
        ...


@runtime_checkable
class CanFail(Protocol):
    """A task that can fail before the time limit: a base hits something, an object is dropped."""

    def failed(self, view: Any) -> Bool[Tensor, " n"]:
        """Worlds whose episode ends now, without success."""
        ...


class DriveStart(NamedTuple):
    """State, goal and control memory of k episodes that start."""

    start: Start
    goal: Float[Tensor, "k g"]
    memory: Float[Tensor, "k w"]


@runtime_checkable
class Drive(Protocol):
    """Turns actions into servo targets. Pure: the caller keeps its memory of each world. It is compiled with
    the task's functions, so it takes and returns tensors only.
    """

    action: ActionSpec  # the complete action
    numbers: int  # uniform numbers that the start of an episode takes
    cloud_m: tuple[
        tuple[float, float, float], tuple[float, float, float]
    ]  # point clouds are cropped to this box

    @property
    def wiring(self) -> SceneColumns:
        """Columns of the engine's arrays, by joint, servo and object."""
        ...

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> Any:
        """View that this body's tasks and their experts read."""
        ...

    def start(self, uniform: Float[Tensor, "k u"]) -> DriveStart:
        """Start states of k episodes. uniform: in (0, 1)."""
        ...

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], view: Any
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n w"]]:
        """Targets of all servos, and the next memory."""
        ...

    def script(self, view: Any) -> Float[Tensor, "n b"]:
        """Command of the task's expert, each number in [-1, 1]; noise is added to it."""
        ...

    def from_script(
        self, wanted: Float[Tensor, "n b"], view: Any, memory: Float[Tensor, "n w"]
    ) -> Float[Tensor, "n a"]:
        """Action for a command of `script`; `memory` is what `command` will be given with the action."""
        ...


@runtime_checkable
class Mounts(Protocol):
    """A body of several parts."""

    def mount(self, spec: Any) -> None:
        """Add its other parts to the scene, which has the one at `path`."""
        ...


@runtime_checkable
class Body(Protocol):
    """Robot that a task commands, before there is a scene."""

    @property
    def path(self) -> Path | None:
        """The MJCF that is added to the task's scene; None: the scene contains it already."""
        ...

    def drive(self, scene: Scene, like: Tensor) -> Drive:
        """Drive of this body in a compiled scene; `like` gives dtype and device.

        Raises ConfigError for a task that does not fit the body.
        """
        ...
