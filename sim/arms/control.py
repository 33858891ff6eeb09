"""Control modes of an arm: actions to position targets of the servos, for all worlds at once.

Each mode keeps a memory per world: the desired joint positions or tool pose. An action moves this target, and
a leash limits its distance from the arm's measured pose: a blocked arm presses, but with bounded force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.arms.chain import KinematicChain, damped_step
from sim.arms.robot import ArmRobot
from sim.bodies.pose import Pose, pose_error
from sim.bodies.rotation import about_z, conjugate, from_rotvec, multiply, to_rotvec

MODES = ("cartesian", "joint_velocity", "joint_position")
TURNS = {"none": 0, "yaw": 1, "full": 3}  # how a Cartesian command turns the tool -> number of columns


@dataclass(frozen=True, slots=True)
class Reach:
    """Limits of a Cartesian command; each step is one control step at full action."""

    turns: str = "none"
    step_m: float = 0.025
    step_rad: float = 0.1
    leash_m: float = 0.04
    leash_rad: float = 0.2
    low_m: tuple[float, float, float] = (0.2, -0.4, 0.0)
    high_m: tuple[float, float, float] = (0.75, 0.4, 0.6)
    plane: bool = False  # the tool keeps its initial height, and a command has no z


@runtime_checkable
class Control(Protocol):
    """A control mode. Pure: the caller keeps the memory. The first columns of an action move the arm; a
    column for the fingers is ignored.
    """

    action: ActionSpec

    def begin(self, q_rad: Float[Tensor, "k j"], tool: Pose) -> Float[Tensor, "k w"]:
        """Memory of worlds that start here."""
        ...

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], q_rad: Float[Tensor, "n j"],
        tool: Pose, links: Pose,
    ) -> tuple[Float[Tensor, "n j"], Float[Tensor, "n w"]]:  # fmt: skip
        """Targets of the servos [rad], and the next memory."""
        ...


class Cartesian:
    """Tool motion in [-1, 1]: x, y, z in the world's axes, then a turn; solved by damped least squares."""

    def __init__(self, chain: KinematicChain, robot: ArmRobot, reach: Reach) -> None:
        if reach.turns not in TURNS:
            raise UnknownNameError("turns", reach.turns, TURNS)
        self._moves = 2 if reach.plane else 3
        dims = self._moves + TURNS[reach.turns]
        turn = {
            "none": "",
            "yaw": f", yaw {reach.step_rad:g} rad",
            "full": f", rotation vector {reach.step_rad:g} rad",
        }
        unit = f"tool x, y{'' if reach.plane else ', z'} {reach.step_m:g} m{turn[reach.turns]}"
        self.action = ActionSpec((-1.0,) * dims, (1.0,) * dims, unit)
        self._chain, self._reach = chain, reach
        self._rest = chain.low_rad.new_tensor(robot.home_rad)
        self._low_m, self._high_m = (chain.low_rad.new_tensor(limit) for limit in (reach.low_m, reach.high_m))

    def begin(self, q_rad: Float[Tensor, "k j"], tool: Pose) -> Float[Tensor, "k 7"]:
        return torch.cat([tool.m, tool.quat], -1)

    def command(
        self, memory: Float[Tensor, "n 7"], action: Float[Tensor, "n a"], q_rad: Float[Tensor, "n j"],
        tool: Pose, links: Pose,
    ) -> tuple[Float[Tensor, "n j"], Float[Tensor, "n 7"]]:  # fmt: skip
        reach = self._reach
        move = torch.nn.functional.pad(action[:, : self._moves], (0, 3 - self._moves))
        offset = memory[:, :3] + reach.step_m * move - tool.m
        goal_m = (
            (tool.m + offset.clamp(-reach.leash_m, reach.leash_m)).maximum(self._low_m).minimum(self._high_m)
        )
        goal = Pose(goal_m, self._turned(memory[:, 3:], action, tool.quat))
        step = damped_step(
            self._chain.jacobian(links, tool.m), pose_error(goal, tool), self._rest - q_rad, 0.02, 0.1
        )
        target = (q_rad + step).maximum(self._chain.low_rad).minimum(self._chain.high_rad)
        return target, torch.cat(goal, -1)

    def _turned(
        self, quat: Float[Tensor, "n 4"], action: Float[Tensor, "n a"], now: Float[Tensor, "n 4"]
    ) -> Float[Tensor, "n 4"]:
        reach = self._reach
        if reach.turns == "none":
            return quat
        if reach.turns == "yaw":
            wanted = multiply(about_z(reach.step_rad * action[:, self._moves]), quat)
        else:
            wanted = multiply(from_rotvec(reach.step_rad * action[:, self._moves : self._moves + 3]), quat)
        lead = to_rotvec(multiply(wanted, conjugate(now)))
        size = lead.norm(dim=-1, keepdim=True).clamp_min(1e-9)
        return multiply(from_rotvec(lead * (reach.leash_rad / size).clamp_max(1.0)), now)


class JointVelocity:
    """Joint velocities [rad/s] within the manufacturer's limits."""

    def __init__(
        self, chain: KinematicChain, robot: ArmRobot, control_hz: float, leash_rad: float = 0.3
    ) -> None:
        named = ", ".join(robot.joints)
        self.action = ActionSpec(tuple(-v for v in robot.speed_rad_s), robot.speed_rad_s, f"rad/s: {named}")
        self._chain, self._dt_s, self._leash_rad = chain, 1.0 / control_hz, leash_rad

    def begin(self, q_rad: Float[Tensor, "k j"], tool: Pose) -> Float[Tensor, "k j"]:
        return q_rad.clone()

    def command(
        self, memory: Float[Tensor, "n j"], action: Float[Tensor, "n a"], q_rad: Float[Tensor, "n j"],
        tool: Pose, links: Pose,
    ) -> tuple[Float[Tensor, "n j"], Float[Tensor, "n j"]]:  # fmt: skip
        lead = memory + self._dt_s * action[:, : memory.shape[1]] - q_rad
        target = q_rad + lead.clamp(-self._leash_rad, self._leash_rad)
        target = target.maximum(self._chain.low_rad).minimum(self._chain.high_rad)
        return target, target


class JointPosition:
    """Joint positions [rad] within their ranges; the arm moves there as fast as the leash allows."""

    def __init__(self, chain: KinematicChain, robot: ArmRobot, leash_rad: float = 0.3) -> None:
        named = ", ".join(robot.joints)
        self.action = ActionSpec(
            tuple(chain.low_rad.tolist()), tuple(chain.high_rad.tolist()), f"rad: {named}"
        )
        self._leash_rad = leash_rad

    def begin(self, q_rad: Float[Tensor, "k j"], tool: Pose) -> Float[Tensor, "k 0"]:
        return q_rad[:, :0]

    def command(
        self, memory: Float[Tensor, "n 0"], action: Float[Tensor, "n a"], q_rad: Float[Tensor, "n j"],
        tool: Pose, links: Pose,
    ) -> tuple[Float[Tensor, "n j"], Float[Tensor, "n 0"]]:  # fmt: skip
        lead = action[:, : q_rad.shape[1]] - q_rad
        return q_rad + lead.clamp(-self._leash_rad, self._leash_rad), memory


def make_control(
    mode: str, chain: KinematicChain, robot: ArmRobot, reach: Reach, control_hz: float
) -> Control:
    """Control mode by name. Raises UnknownNameError for an unknown mode, ConfigError for an arm that starts
    out of reach.
    """
    if mode == "joint_velocity":
        return JointVelocity(chain, robot, control_hz)
    if mode == "joint_position":
        return JointPosition(chain, robot)
    if mode != "cartesian":
        raise UnknownNameError("control", mode, MODES)
    if any(low >= high for low, high in zip(reach.low_m, reach.high_m, strict=True)):
        raise ConfigError(f"The tool's space {reach.low_m} to {reach.high_m} is empty.")
    return Cartesian(chain, robot, reach)
