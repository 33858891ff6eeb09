"""PyBullet as an engine for scenes: rigid contacts and another solver, for a comparison on the same tasks.

Every world is a PyBullet client of its own, which takes tens of megabytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int
from sim.engines.bullet.scenes.check import check_scene
from sim.engines.bullet.scenes.frames import to_mujoco
from sim.engines.bullet.scenes.recipe import make_recipe
from sim.engines.bullet.scenes.replay_log import ReplayLog
from sim.engines.bullet.scenes.world import SceneWorld
from sim.engines.changes import check_changes
from sim.engines.forward_kinematics import place
from sim.engines.mujoco.picture import ScenePictures
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation

MAX_WORLDS = 1000  # PyBullet's clients are counted, and other code may hold some


class BulletEngine:
    """See `sim.engines.protocol.Engine`. Raises ConfigError for a scene that PyBullet cannot simulate."""

    def __init__(self, scene: Scene, num_envs: int) -> None:
        if not 1 <= num_envs <= MAX_WORLDS:
            raise ConfigError(f"num_envs is {num_envs}; expected 1 to {MAX_WORLDS} in a process of PyBullet.")
        check_scene(scene)
        self.scene, self.num_envs, self.device = scene, num_envs, torch.device("cpu")
        model = scene.model
        self._worlds = [SceneWorld(scene) for _ in range(num_envs)]
        self._recipe = make_recipe(scene)
        self._recipes = [self._recipe] * num_envs
        parts = self._recipe.parts
        self._joints = [link.joint for part in parts for link in part.links if link.joint >= 0]
        flying = [(part.joint, part.pose) for part in parts if part.joint >= 0]
        self._free = [(int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j]), pose) for j, pose in flying]
        self._stale: set[int] = set()  # worlds whose recipe is newer than what was built
        self._changes: dict[int, dict[str, ndarray]] = {}
        self._data, self._pictures = mujoco.MjData(model), ScenePictures(model)
        self._qpos, self._qvel = np.tile(model.qpos0, (num_envs, 1)), np.zeros((num_envs, model.nv))
        self._fixtures = np.tile(own_fixtures(self._data), (num_envs, 1, 1))
        self._ctrl = np.zeros((num_envs, model.nu))  # at which servos begin
        self._bodies = np.zeros((num_envs, model.nbody, 7))
        self._touch = np.zeros((num_envs, len(scene.touch)))
        self._past = ReplayLog(num_envs, model.nq, model.nv, model.nu, model.nmocap)
        for world in range(num_envs):
            self._begin(world)

    def step(self, ctrl: Float[Tensor, "n nu"], substeps: int) -> None:
        for world, row in enumerate(ctrl.numpy().astype(np.float64)):
            self._step_world(world, row, substeps)
        self._read(range(self.num_envs))

    def physics(self) -> Physics:
        qpos, qvel, touch = (
            torch.from_numpy(array.copy()) for array in (self._qpos, self._qvel, self._touch)
        )
        bodies = torch.from_numpy(self._bodies.copy())
        return Physics(qpos, qvel, bodies[..., :3], bodies[..., 3:], touch)

    def set_state(self, worlds: Int[Tensor, " k"], start: Start) -> None:
        rows = worlds.numpy()
        self._qpos[rows] = start.qpos.numpy()
        self._qvel[rows] = 0.0 if start.qvel is None else start.qvel.numpy()
        self._fixtures[rows] = torch.cat([start.fixture_m, start.fixture_quat], dim=-1).numpy()
        self._ctrl[rows] = start.ctrl.numpy()
        for world in rows.tolist():
            self._begin(world)

    def randomise(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> None:
        check_changes(self.scene, changes, len(worlds))
        for row, world in enumerate(worlds.tolist()):
            mine = {name: each[row].numpy().astype(np.float64) for name, each in changes.items()}
            mine = self._changes.get(world, {}) | mine
            self._recipes[world], self._changes[world] = make_recipe(self.scene, mine), mine
            self._stale.add(world)  # most begin anew at once: built then, or before the next step

    def save(self) -> dict[str, Tensor]:
        """Starts and commands since then: cheap to store; `load` replays them, which is exact but slow."""
        return self._past.save()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        start, commands, substeps = ReplayLog.read(saved)
        self.set_state(torch.arange(self.num_envs), start)
        for world in range(self.num_envs):
            for ctrl, count in zip(commands[world], substeps[world], strict=True):
                self._step_world(world, ctrl, count)
        self._read([world for world, sent in enumerate(commands) if sent])

    def render(
        self,
        world: int,
        camera: str,
        height: int,
        width: int,
        kind: str = "rgb",
        visuals: VisualRandomisation | None = None,
    ) -> Tensor:
        data = self._pictures.data
        place(self.scene.model, data, self._qpos[world], *apart(self._fixtures[world]))
        mujoco.mj_camlight(self.scene.model, data)
        return self._pictures.take(camera, height, width, kind, visuals)

    def close(self) -> None:
        self._pictures.close()
        for world in self._worlds:
            world.close()

    def _step_world(self, world: int, ctrl: Float[ndarray, " nu"], substeps: int) -> None:
        if world in self._stale:
            self._begin(world)
        self._past.add(world, ctrl, substeps)
        self._worlds[world].step(ctrl, substeps)
        self._touch[world] = self._worlds[world].touch()

    def _read(self, worlds: Sequence[int]) -> None:
        """Read the state of worlds that have moved; the others are exactly where they were put."""
        if not worlds:
            return
        model, rows = self.scene.model, np.array(worlds)
        joints, free = (
            np.array(seen) for seen in zip(*(self._worlds[i].read() for i in worlds), strict=True)
        )
        if len(self._joints):
            at, dof = model.jnt_qposadr[self._joints], model.jnt_dofadr[self._joints]
            self._qpos[rows[:, None], at] = joints[..., 0] + model.qpos0[at]
            self._qvel[rows[:, None], dof] = joints[..., 1]
        for i, (first, speed, inertial) in enumerate(self._free):
            pose, move = to_mujoco(free[:, i], inertial)
            self._qpos[rows, first : first + 7], self._qvel[rows, speed : speed + 6] = pose, move
        for world in worlds:
            self._pose(world)

    def _begin(self, world: int) -> None:
        """Start from the state in the arrays; the replay log of the world starts here."""
        self._stale.discard(world)
        qpos, qvel, ctrl = self._qpos[world], self._qvel[world], self._ctrl[world]
        self._past.begin(world, qpos, qvel, self._fixtures[world], ctrl)
        self._touch[world] = 0.0
        self._pose(world)
        self._worlds[world].begin(self._recipes[world], qpos, qvel, self._bodies[world], ctrl)

    def _pose(self, world: int) -> None:
        """Compute body poses by MuJoCo's kinematics: exact, and faster than querying Bullet for
        every link.
        """
        place(self.scene.model, self._data, self._qpos[world], *apart(self._fixtures[world]))
        self._bodies[world, :, :3], self._bodies[world, :, 3:] = self._data.xpos, self._data.xquat


def apart(fixtures: Float[ndarray, "nf 7"]) -> tuple[Float[ndarray, "nf 3"], Float[ndarray, "nf 4"]]:
    """Positions and quaternions of poses."""
    return fixtures[:, :3], fixtures[:, 3:]


def own_fixtures(data: mujoco.MjData) -> Float[ndarray, "nf 7"]:
    """Fixtures at the poses of the model."""
    return np.concatenate([data.mocap_pos, data.mocap_quat], axis=-1)
