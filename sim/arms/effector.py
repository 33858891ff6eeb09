"""What an arm carries at its end: its part of an action, and of the servos' targets."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.arms.view import View, Wiring
from sim.engines.protocol import Physics


@runtime_checkable
class Effector(Protocol):
    """The last columns of an action, e of them, after those of the arm. Pure, as a `Drive` is."""

    action: ActionSpec  # e numbers; the unit begins with its separator from that of the arm

    @property
    def wiring(self) -> Wiring:
        """Columns of the arm, and of what it carries."""
        ...

    @property
    def servos(self) -> Any:
        """Its columns of ctrl."""
        ...

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> View:
        """View of arm and effector for tasks and experts."""
        ...

    def targets(self, action: Float[Tensor, "n e"], view: Any) -> Float[Tensor, "n s"]:
        """Targets of its s servos; not called where e is 0."""
        ...

    def from_script(self, wanted: Float[Tensor, "n e"], view: Any) -> Float[Tensor, "n e"]:
        """Action for a command of the expert in [-1, 1]."""
        ...


class Gripper:
    """Fingers on slides, moved by one number: -1 closed, 1 open; by none in a task that does not grip, where
    they stay closed.

    Raises ConfigError for an arm with which a task that grips cannot be commanded or scored.
    """

    def __init__(self, wiring: Wiring, grips: bool) -> None:
        self.wiring = wiring
        self.action = (
            ActionSpec((-1.0,), (1.0,), ", fingers: -1 closed, 1 open") if grips else ActionSpec((), ())
        )
        if grips:
            _check_grip(wiring)

    @property
    def servos(self) -> Any:
        return self.wiring.grips

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> View:
        return View(physics, self.wiring, goal)

    def targets(self, action: Float[Tensor, "n e"], view: View) -> Float[Tensor, "n s"]:
        return 0.5 * (action + 1.0) * self.wiring.robot.open_m

    def from_script(self, wanted: Float[Tensor, "n e"], view: View) -> Float[Tensor, "n e"]:
        return wanted


def _check_grip(wiring: Wiring) -> None:
    """Raise ConfigError for an arm without fingers, or without a touch sensor on each."""
    if not wiring.robot.fingers:
        raise ConfigError(
            f"{wiring.robot.name} has no fingers, and this task grips: name its fingers and open_m in its "
            "YAML file, or choose a task without a gripper, such as arm/reach."
        )
    _ = wiring.finger_touch  # raises for a finger without a touch sensor
