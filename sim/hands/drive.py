"""Drive of a hand: joint position targets on a leash. See `sim.bodies.protocol`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.bodies.protocol import DriveStart, SceneTask
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.hands.robot import Hand, load_hand
from sim.hands.view import HandView, HandWiring, wire

MODES = ("joint_position",)
CLOUD_M = ((-0.3, -0.3, 0.0), (0.3, 0.3, 0.5))  # the hand and the space above it
LEASH_RAD = 0.2  # maximum distance of a servo's target from its joint


@runtime_checkable
class HandTask(SceneTask, Protocol):
    """Members that a hand needs of a task. k = episodes that start, u = uniform numbers of each, g = numbers
    of a goal.
    """

    numbers: int  # u

    def start(
        self, uniform: Float[Tensor, "k u"], start: Start, wiring: HandWiring
    ) -> tuple[Start, Float[Tensor, "k g"]]:
        """Start states and goals of k episodes.

        uniform: in (0, 1). start: the hand at rest, everything else as in the MJCF; fresh tensors, to be
        filled.
        """
        ...

    def expert(self, view: HandView) -> Float[Tensor, "n fj"]:
        """Joint motion of the expert [rad], a function of the view alone.

        Raises ConfigError for a variant of the task that the script cannot do.
        """
        ...


class HandBody:
    """The hand `options.robot`. Raises UnknownNameError for an unknown hand or control."""

    def __init__(self, task: HandTask, options: Any) -> None:
        if options.control not in MODES:
            raise UnknownNameError("control of a hand", options.control, MODES)
        self._task, self._hand = task, load_hand(options.robot)

    @property
    def path(self) -> Path:
        return self._hand.path

    def drive(self, scene: Scene, like: Tensor) -> HandDrive:
        return HandDrive(scene, self._hand, self._task, like)


class HandDrive:
    """An action is the joint positions [rad]; the joints go there as fast as the leash allows."""

    def __init__(self, scene: Scene, hand: Hand, task: HandTask, like: Tensor) -> None:
        self._task = task
        self.wiring = wire(scene, hand, like)
        self.numbers, self.cloud_m = task.numbers, CLOUD_M
        low, high = self.wiring.low_rad.tolist(), self.wiring.high_rad.tolist()
        self.action = ActionSpec(tuple(low), tuple(high), f"rad: {', '.join(hand.joints)}")

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> HandView:
        return HandView(physics, self.wiring, goal)

    def start(self, uniform: Float[Tensor, "k u"]) -> DriveStart:
        """Start states at rest, fingers bent over the palm."""
        wiring = self.wiring
        start = wiring.as_written(len(uniform))
        start.qpos[:, wiring.joints] = wiring.home_rad
        start.ctrl[:, wiring.servos] = wiring.home_rad
        begun, goal = self._task.start(uniform, start, wiring)
        return DriveStart(begun, goal, begun.qpos[:, :0])

    def command(
        self, memory: Float[Tensor, "n 0"], action: Float[Tensor, "n a"], view: HandView
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n 0"]]:
        q_rad = view.q_rad
        ctrl = q_rad.new_zeros(len(q_rad), self.wiring.scene.model.nu)
        ctrl[:, self.wiring.servos] = q_rad + (action - q_rad).clamp(-LEASH_RAD, LEASH_RAD)
        return ctrl, memory

    def script(self, view: HandView) -> Float[Tensor, "n a"]:
        """Joint motions as fractions of the leash."""
        return (self._task.expert(view) / LEASH_RAD).clamp(-1.0, 1.0)

    def from_script(
        self, wanted: Float[Tensor, "n a"], view: HandView, memory: Tensor
    ) -> Float[Tensor, "n a"]:
        target = view.q_rad + LEASH_RAD * wanted
        return target.maximum(self.wiring.low_rad).minimum(self.wiring.high_rad)
