"""A hand of several fingers at the flange of an arm, in place of its gripper: see `sim.bodies.protocol`.

An action: what moves the arm, as in `sim.arms.control`; then the joint positions of the hand [rad], to which
they go as fast as the leash allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import mujoco
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.arms.chain import KinematicChain
from sim.arms.drive import ArmDrive, ManipulationTask
from sim.arms.robot import ArmRobot, load_robot, naming_file
from sim.arms.view import View, Wiring
from sim.bodies.rotation import rotate
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.hands.drive import LEASH_RAD
from sim.hands.robot import HANDS, Hand
from sim.hands.view import HandView, HandWiring, wire

HAND = HANDS["hand4"]
_SURROUNDINGS = 2  # bit of tables and walls, see sim/assets
_NAMED = ("bodies", "joints", "geoms", "sites", "actuators", "sensors")  # what a hand's model names


def mount_hand(spec: Any, arm: ArmRobot, hand: Hand) -> None:
    """Mount the hand in place of the gripper of the arm in a scene; the arm's tool becomes the middle between
    its fingertips. Raises ConfigError for an arm without the body that it names, for one that moves by joints
    in that body, and for names of both.
    """
    gripper = spec.body(arm.gripper)
    if gripper is None:
        raise ConfigError(
            f"{arm.name} has no body '{arm.gripper}' in whose place a hand can be mounted: name the body of "
            "its gripper in its YAML file, such as gripper: hand."
        )
    inside = {joint.name for joint in gripper.find_all("joint")}
    if lost := [name for name in arm.joints if name in inside]:
        raise ConfigError(
            f"{arm.name} has its joints {', '.join(lost)} in the body '{arm.gripper}', which the hand would "
            "replace: name as gripper: the body behind the last of its joints."
        )
    flange, quat = gripper.parent, torch.tensor(gripper.quat)
    part = mujoco.MjSpec.from_file(str(hand.path))
    part.default.name = "hand"  # MuJoCo cannot read an unnamed class that it has written
    up_m = hand.flange_m - float(part.body(hand.palm).pos[2])
    place_m = torch.tensor(gripper.pos) + rotate(quat, quat.new_tensor([0.0, 0.0, up_m]))
    spec.delete(gripper)
    if (tool := spec.site(arm.tool)) is not None:  # the hand gets one of this name
        spec.delete(tool)
    _check_names(spec, arm, hand, part)
    for geom in part.geoms:
        if geom.contype:
            geom.conaffinity |= _SURROUNDINGS
    spec.attach(part, frame=flange.add_frame(pos=place_m.tolist(), quat=quat.tolist()), prefix="")
    palm = spec.body(hand.palm)
    palm.gravcomp = 1.0  # as the arm's links
    palm.add_site(name=arm.tool, pos=(0.0, 0.0, hand.grasp_m), size=(0.005, 0.005, 0.005), group=4)


def _check_names(spec: Any, arm: ArmRobot, hand: Hand, part: Any) -> None:
    """Raise ConfigError for the names that the arm without its gripper shares with the hand."""
    for kind in _NAMED:
        own = {each.name for each in getattr(part, kind)} - {"", "world"}
        others = {each.name for each in getattr(spec, kind)} | ({arm.tool} if kind == "sites" else set())
        if shared := sorted(own & others):
            raise ConfigError(
                f"{arm.name} cannot carry {hand.name}: both have {kind} named {', '.join(shared)}. Rename "
                f"those in {arm.path}."
            )


@dataclass(frozen=True)
class ArmHandWiring(Wiring):
    """Columns of the arm and of the hand."""

    hand: HandWiring

    @cached_property
    def open_rad(self) -> Float[Tensor, " fj"]:
        """Positions of the hand's joints around an object."""
        hand = self.hand.hand
        return self.like.new_tensor(hand.open_rad * len(hand.fingers))

    @cached_property
    def closed_rad(self) -> Float[Tensor, " fj"]:
        hand = self.hand.hand
        return self.like.new_tensor(hand.closed_rad * len(hand.fingers))

    def opened(self, q_rad: Float[Tensor, "k j"]) -> Start:
        """Start state with the arm at rest at `q_rad` and the hand open."""
        start = self.start(q_rad, 0.0)
        start.qpos[:, self.hand.joints] = self.open_rad
        start.ctrl[:, self.hand.servos] = self.open_rad
        return start


class ArmHandView(View):
    """View of n worlds: that of an arm, and the hand's in `hand`."""

    def __init__(self, physics: Physics, wiring: ArmHandWiring, goal: Float[Tensor, "n g"]) -> None:
        super().__init__(physics, wiring, goal)
        self.hand = HandView(physics, wiring.hand, goal)
        self.open_rad, self.closed_rad = wiring.open_rad, wiring.closed_rad


class MountedHand:
    """See `sim.arms.effector.Effector`."""

    def __init__(self, wiring: ArmHandWiring) -> None:
        self.wiring, self._low_rad, self._high_rad = wiring, wiring.hand.low_rad, wiring.hand.high_rad
        joints = ", ".join(wiring.hand.hand.joints)
        low, high = self._low_rad.tolist(), self._high_rad.tolist()
        self.action = ActionSpec(tuple(low), tuple(high), f"; rad: {joints}")

    @property
    def servos(self) -> Any:
        return self.wiring.hand.servos

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> ArmHandView:
        return ArmHandView(physics, self.wiring, goal)

    def targets(self, action: Float[Tensor, "n e"], view: ArmHandView) -> Float[Tensor, "n e"]:
        q_rad = view.hand.q_rad
        return q_rad + (action - q_rad).clamp(-LEASH_RAD, LEASH_RAD)

    def from_script(self, wanted: Float[Tensor, "n e"], view: ArmHandView) -> Float[Tensor, "n e"]:
        return (view.hand.q_rad + LEASH_RAD * wanted).maximum(self._low_rad).minimum(self._high_rad)


class ArmHandBody:
    """The arm `options.robot` with a hand in place of its gripper. See `sim.bodies.protocol.Body`."""

    def __init__(self, task: ManipulationTask, options: Any) -> None:
        arm = replace(load_robot(options.robot), fingers=(), open_m=0.0)
        self._task, self._control, self._arm = task, options.control, arm
        self._given = options.robot

    @property
    def path(self) -> Path:
        return self._arm.path

    def mount(self, spec: Any) -> None:
        with naming_file(self._given):
            mount_hand(spec, self._arm, HAND)

    def drive(self, scene: Scene, like: Tensor) -> ArmDrive:
        with naming_file(self._given):
            chain = KinematicChain(scene, self._arm, like.device, like.dtype)
            wiring = ArmHandWiring(scene, like, self._arm, chain, wire(scene, HAND, like))
            return ArmDrive(MountedHand(wiring), self._task, self._control)
