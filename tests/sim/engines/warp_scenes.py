"""Scenes in which MuJoCo Warp and C MuJoCo are compared: an arm in the air, or with its gripper around an
object.
"""

from __future__ import annotations

from typing import Any

import mujoco
import torch
from torch import Tensor

from sim.asset_files import ASSETS
from sim.engines.protocol import Start
from sim.engines.scene import Scene, compile_scene

HOME_RAD = (0.0, -0.5, 0.0, -2.2, 0.0, 1.7, 0.785)  # the gripper points down
ARM = tuple(f"joint{i}" for i in range(1, 8))
FINGERS = ("finger_left", "finger_right")
# Object, half the width between the fingers [m], and how deep its shaft starts in the hole [m].
OBJECTS = {"lift": ("cube", 0.02, None), "peg_insert": ("peg", 0.01, 0.03)}


def scene_of(name: str, edit: Any = None) -> Scene:
    return compile_scene(ASSETS / f"{name}.xml", ASSETS / "panda.xml", edit)


def resting(scene: Scene, name: str, worlds: int, seed: int = 0) -> Start:
    """The arm in the air, each joint some 0.1 rad off its home; the cube on the table, or the peg lying on
    it.
    """
    noise = 0.1 * torch.randn(worlds, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    qpos = torch.from_numpy(scene.model.qpos0).repeat(worlds, 1)
    for i, joint in enumerate(ARM):
        qpos[:, scene.qpos(joint)] = HOME_RAD[i] + noise[:, i : i + 1]
    for finger in FINGERS:
        qpos[:, scene.qpos(finger)] = 0.03
    lying = (
        (0.5, 0.2, 0.0099, 0.70710678, 0.0, 0.70710678, 0.0)
        if name == "peg_insert"
        else (0.5, 0.2, 0.02, 1, 0, 0, 0)
    )
    qpos[:, scene.qpos(OBJECTS[name][0])] = torch.tensor(lying, dtype=torch.float64)
    return _start(scene, qpos, torch.tensor([0.5, -0.2, 0.0]))


def grasping(scene: Scene, name: str, worlds: int) -> Start:
    """Open fingers around the object, with closing servos; the peg's shaft is in the hole with 0.5 mm of
    play.
    """
    thing, half_m, depth_m = OBJECTS[name]
    start = resting(scene, name, worlds)
    qpos = start.qpos.clone()
    for i, joint in enumerate(ARM):
        qpos[:, scene.qpos(joint)] = HOME_RAD[i]
    for finger in FINGERS:
        qpos[:, scene.qpos(finger)] = half_m + 0.0005
    data = mujoco.MjData(scene.model)
    data.qpos[:] = qpos[0].numpy()
    mujoco.mj_kinematics(scene.model, data)
    tool_m = torch.from_numpy(data.site("tool").xpos.copy())
    qpos[:, scene.qpos(thing)] = torch.cat([tool_m, torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)])
    hole_m = tool_m - torch.tensor(
        [0.0, 0.0, 0.062 + 0.06 - (depth_m or 0.0)]
    )  # the peg ends 6.2 cm below its origin
    start = _start(scene, qpos, hole_m)
    for finger in FINGERS:
        start.ctrl[:, scene.ctrl(finger)] = 0.0
    return start


def _start(scene: Scene, qpos: Tensor, fixture_m: Tensor) -> Start:
    worlds, fixtures = len(qpos), len(scene.fixtures)
    ctrl = torch.zeros(worlds, scene.model.nu, dtype=torch.float64)
    for joint in (*ARM, *FINGERS):
        ctrl[:, scene.ctrl(joint)] = qpos[:, scene.qpos(joint)][:, 0]
    quat = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64).repeat(worlds, fixtures, 1)
    return Start(qpos, ctrl, fixture_m.double().repeat(worlds, fixtures, 1), quat)


def random_targets(scene: Scene, ctrl: Tensor, steps: int, reach_rad: float, seed: int = 1) -> Tensor:
    """(steps, n, nu): the arm's targets vary uniformly around `ctrl`, the fingers' are constant."""
    wander = (
        2.0
        * torch.rand(steps, *ctrl.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        - 1
    )
    mask = torch.zeros(scene.model.nu, dtype=torch.float64)
    mask[[scene.ctrl(joint) for joint in ARM]] = reach_rad
    return ctrl + wander * mask


def centre_the_peg(spec: mujoco.MjSpec) -> None:
    """Its mass where its frame is, so that C MuJoCo does not move it by the midpoint rule
    (docs/engines-gpu.md).
    """
    peg = next(body for body in spec.bodies if body.name == "peg")
    peg.explicitinertial, peg.mass, peg.inertia = True, 0.06, [2e-5, 2e-5, 4e-6]
    peg.ipos, peg.iquat = [0, 0, 0], [1, 0, 0, 0]
