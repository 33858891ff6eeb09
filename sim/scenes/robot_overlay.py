"""Pictures of a robot arm alone whose gripper follows a path, through a camera that stands still."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Bool, Float, UInt8
from sim.arms.arm6.body import ASSET, HOME_RAD, JOINTS
from sim.arms.arm6.gripper import GRIPPER, OPEN_M, gripping_spec
from sim.arms.chain import KinematicChain
from sim.arms.robot import ROBOTS, ArmRobot, load_robot, naming_file
from sim.asset_files import read_settings
from sim.bodies.pose import Pose, pose_error
from sim.bodies.rotation import multiply
from sim.engines.meshes import check_meshes
from sim.engines.scene import Scene
from sim.render.renderer import MujocoRenderer

ARM6 = ArmRobot(
    "arm6", str(ASSET), JOINTS, HOME_RAD, (2.0,) * 3 + (3.0,) * 3, (GRIPPER, "gripper_mirror"), OPEN_M
)
_CAMERA = "overlay"
_SIZES = {"position_m": 3, "quat": 4, "fovy_rad": 1}
_STEPS, _ROUNDS, _ENOUGH = 6, 10, 5e-4  # of inverse kinematics; error at which it ends [m + rad]
_STRIDE_M = 0.2  # largest way of the tool in a round


@dataclass(frozen=True, slots=True)
class StillCamera:
    """Pinhole camera. quat: wxyz, camera -> world; it looks along its -z, with x to the right and y up."""

    position_m: tuple[float, ...]
    quat: tuple[float, ...]
    fovy_rad: float  # vertical field of view

    @classmethod
    def load(cls, path: Path) -> StillCamera:
        """Camera of a YAML or JSON file. Raises ConfigError or UnknownNameError with the fault."""
        if not path.is_file():
            raise ConfigError(
                f"There is no file {path} with the camera's pose. Write one with {', '.join(_SIZES)}, or "
                "give another by camera_file=."
            )
        data, found = read_settings(path, tuple(_SIZES)), {}
        for key, size in _SIZES.items():
            value: Any = data.get(key)
            numbers = value if isinstance(value, list) else [value]
            if len(numbers) != size or not all(map(_is_number, numbers)):
                words = f"a list of {size} numbers" if size > 1 else "a number"
                raise ConfigError(f"{path}: {key} is {value}, {words} was expected.")
            found[key] = tuple(float(number) for number in numbers)
        if not 0.0 < found["fovy_rad"][0] < math.pi or math.hypot(*found["quat"]) < 1e-6:
            raise ConfigError(
                f"{path}: expected fovy_rad between 0 and pi and a unit quaternion wxyz, found "
                f"{found['fovy_rad'][0]:g} and {list(found['quat'])}."
            )
        return cls(found["position_m"], found["quat"], found["fovy_rad"][0])


class RobotOverlay:
    """One arm, its base at `base_m` turned by `base_yaw_rad` about z, and its pictures (h, w)."""

    def __init__(
        self, robot: str, camera: StillCamera, height: int, width: int, base_m: Sequence[float],
        base_yaw_rad: float,
    ) -> None:  # fmt: skip
        self._robot, spec = _robot(robot)
        self._model = _alone(spec, camera, base_m, base_yaw_rad)
        self._data: Any = mujoco.MjData(self._model)
        self._scene = Scene(self._model, "")
        with naming_file(robot):
            self._chain = KinematicChain(self._scene, self._robot)
        self._size = (width, height)
        self._renderer: MujocoRenderer | None = None

    @torch.no_grad()
    def follow(
        self, position_m: Float[ndarray, "n t 3"], quat: Float[ndarray, "n t 4"] | None
    ) -> tuple[Float[ndarray, "n t j"], Float[ndarray, "n t 2"]]:
        """Joint positions [rad] that bring the gripper to t poses in a row of n paths, each starting from the
        one before, and what is missing: [m] and [rad], 0 rad without `quat`.

        A gripper of two fingers may hold either of them where the thumb was. Where a pose cannot be reached
        from the one before, the search starts again at the arm's usual pose, with the fingers both ways
        round; if that does not help, the nearest pose found is kept.
        """
        goals, still = torch.from_numpy(position_m), torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
        quats = still.expand(*goals.shape[:2], 4) if quat is None else torch.from_numpy(quat)
        ways = still if quat is None else torch.stack([still, still.roll(3)])  # by half a turn about z
        ways = ways.reshape(-1, 1, 4)
        home = goals.new_tensor(self._robot.home_rad).expand(len(goals), -1)
        q, way = home, still.expand(len(goals), 4)
        path, missing = [], []
        for step in range(goals.shape[1]):
            q, left = self._nearest(goals[:, step], multiply(quats[:, step], way), q, quat is not None)
            for other in ways if bool((_sum(left) > _ENOUGH).any()) else ():
                goal = multiply(quats[:, step], other.expand(len(goals), 4))
                again, rest = self._nearest(goals[:, step], goal, home, quat is not None)
                # A jump is worth it only where it ends at the goal, or at the start of a path.
                better = _sum(rest) < (_sum(left) if step == 0 else _ENOUGH)
                better = (better & (_sum(left) > _ENOUGH))[:, None]
                q, left = torch.where(better, again, q), torch.where(better, rest, left)
                way = torch.where(better, other, way)
            path.append(q)
            missing.append(left)
        return torch.stack(path, 1).numpy(), torch.stack(missing, 1).numpy()

    def _nearest(
        self, goal_m: Float[Tensor, "n 3"], quat: Float[Tensor, "n 4"], q: Float[Tensor, "n j"], turned: bool
    ) -> tuple[Float[Tensor, "n j"], Float[Tensor, "n 2"]]:
        """Best joint positions of a search from `q`, and what is missing [m, rad]."""
        best, least = q, goal_m.new_full((len(q), 2), math.inf)
        for _ in range(_ROUNDS):
            tool, _links = self._chain.place(q)
            error = pose_error(Pose(goal_m, quat), tool)
            left = torch.stack([error[:, :3].norm(dim=-1), error[:, 3:].norm(dim=-1) * turned], -1)
            nearer = (_sum(left) < _sum(least))[:, None]
            best, least = torch.where(nearer, q, best), torch.where(nearer, left, least)
            if bool((_sum(least) < _ENOUGH).all()):
                break
            # Steps towards a point far out of reach would swing the arm to and fro.
            near_m = tool.m + error[:, :3] * (_STRIDE_M / left[:, :1]).clamp_max(1.0)
            q, _rest = self._chain.inverse(Pose(near_m, quat), q, _STEPS, turned)
        return best, least

    def draw(
        self, q_rad: Float[ndarray, " j"], opening: float
    ) -> tuple[UInt8[ndarray, "h w 3"], Bool[ndarray, "h w"]]:
        """Picture of the robot, and its pixels. opening: of the gripper, from 0 to 1."""
        for name, value in zip(self._robot.joints, q_rad, strict=True):
            self._data.qpos[self._scene.qpos(name)] = value
        for name in self._robot.fingers:
            self._data.qpos[self._scene.qpos(name)] = opening * self._robot.open_m
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
        if self._renderer is None:
            self._renderer = MujocoRenderer(self._model, self._data, *self._size, _CAMERA, sites=False)
        return self._renderer.render(), self._renderer.bodies() >= 0

    def close(self) -> None:
        """Free the renderer. May be called twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _sum(missing: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
    return missing.sum(-1)


def _robot(name: str) -> tuple[ArmRobot, Any]:
    """An arm and its mujoco.MjSpec without floor and goals. Raises UnknownNameError or ConfigError."""
    if name == "arm6":
        spec = gripping_spec()
        for extra in (spec.geom("floor"), spec.body("goal"), *spec.lights):
            spec.delete(extra)
        return ARM6, spec
    if name not in ROBOTS and Path(name).suffix not in (".yaml", ".yml"):
        raise UnknownNameError("robot", name, ("arm6", *ROBOTS, "<file>.yaml"))
    robot = load_robot(name)
    try:
        spec = mujoco.MjSpec.from_file(str(robot.path))
    except ValueError as error:
        raise ConfigError(f"MuJoCo cannot read {robot.path}: {' '.join(str(error).split())}") from error
    check_meshes(spec, robot.path)
    return robot, spec


def _alone(part: Any, camera: StillCamera, base_m: Sequence[float], base_yaw_rad: float) -> Any:
    """Compiled model of the robot, the camera, and the light of the arm tasks."""
    spec = mujoco.MjSpec()
    light = spec.worldbody.add_light(pos=[1.0, -1.0, 3.0], dir=[-0.3, 0.3, -1.0])
    light.diffuse = [0.6, 0.6, 0.6]
    spec.visual.headlight.ambient, spec.visual.headlight.diffuse = [0.35] * 3, [0.4] * 3
    fovy = math.degrees(camera.fovy_rad)
    spec.worldbody.add_camera(name=_CAMERA, pos=list(camera.position_m), quat=list(camera.quat), fovy=fovy)
    turn = [math.cos(0.5 * base_yaw_rad), 0.0, 0.0, math.sin(0.5 * base_yaw_rad)]
    part.default.name = "robot"  # as in `sim.engines.scene`
    spec.attach(part, frame=spec.worldbody.add_frame(pos=list(base_m), quat=turn), prefix="")
    return spec.compile()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
