"""C MuJoCo on threads: the default engine, on every platform.

Every thread has one simulation through which its worlds pass in turn: set the state, step, read. This keeps
MuJoCo's working memory in the cache, so that a world costs the same among 64 and among 4,096, and adds less
than 5 % to the time of ten sub-steps. `mujoco.rollout` does the same in C, but does not return body
positions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import mujoco
import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int
from sim.actuators.motors import MotorBank
from sim.engines.changes import check_changes
from sim.engines.mujoco.change import change_model
from sim.engines.mujoco.motion_model import flags_by_sensors, motion_model, weigh_by_forces, weights
from sim.engines.mujoco.picture import ScenePictures
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation

_PARTS = (
    "QPOS",
    "QVEL",
    "ACT",
    "WARMSTART",
    "CTRL",
    "MOCAP_POS",
    "MOCAP_QUAT",
)  # in MuJoCo's own order
_WORLDS_PER_THREAD = 16  # with fewer, a thread costs more than it saves


class MujocoEngine:
    """See `sim.engines.protocol.Engine`. threads: the most to use; 0 for one per processor."""

    has_motors = True  # subclasses have motors, too

    def __init__(self, scene: Scene, num_envs: int, threads: int = 1) -> None:
        if threads < 0:
            raise ConfigError(f"threads is {threads}; expected 0 (as many as there are processors) or more.")
        self.scene, self.num_envs, self.device = scene, num_envs, torch.device("cpu")
        self._model = model = motion_model(scene)
        self._gravity = weigh_by_forces(model)
        self._pulls: dict[int, Any] = {}  # of worlds whose parameters differ, as `xfrc_applied`
        self._pull = None if self._gravity is None else weights(model, self._gravity)
        self._flags = flags_by_sensors(model)
        self._signature = sum(int(getattr(mujoco.mjtState, f"mjSTATE_{part}")) for part in _PARTS)
        self._rows = np.zeros((num_envs, mujoco.mj_stateSize(model, self._signature)))
        self._columns = _columns(model)
        self._body_m = np.zeros((num_envs, model.nbody, 3))
        self._body_quat = np.zeros((num_envs, model.nbody, 4))
        self._sensors = np.zeros((num_envs, model.nsensordata))
        self._seen = False  # True once body poses were returned: they are not written to again
        self._touch = _touch_columns(scene)
        self._models: dict[int, Any] = {}  # worlds whose parameters differ
        self._bank = (
            None if scene.motors is None else MotorBank(model, scene.motors, num_envs, scene.timestep_s)
        )
        count = min(threads or os.cpu_count() or 1, max(1, num_envs // _WORLDS_PER_THREAD))
        self._bounds = np.linspace(0, num_envs, count + 1).astype(int).tolist()
        self._data = [mujoco.MjData(model) for _ in self._bounds[1:]]
        self._pool = ThreadPoolExecutor(len(self._data)) if len(self._data) > 1 else None
        # Motors and flags are written into the model, step by step: no two threads may share one.
        self._shared = [deepcopy(model) for _ in self._data]
        self._pictures = ScenePictures(scene.model)
        first = Start(
            torch.from_numpy(np.tile(model.qpos0, (num_envs, 1))),
            torch.zeros(num_envs, model.nu),
            torch.from_numpy(np.tile(self._data[0].mocap_pos, (num_envs, 1, 1))),
            torch.from_numpy(np.tile(self._data[0].mocap_quat, (num_envs, 1, 1))),
        )
        self.set_state(torch.arange(num_envs), first)

    def step(self, ctrl: Float[Tensor, "n nu"], substeps: int) -> None:
        self._part("CTRL")[:] = ctrl.numpy()
        if self._seen:  # every row of both is written
            self._body_m, self._body_quat = np.empty_like(self._body_m), np.empty_like(self._body_quat)
            self._seen = False
        run = self._run if self._bank is None else self._run_motors
        if self._pool is None:
            run(0, substeps)
        else:
            list(self._pool.map(lambda part: run(part, substeps), range(len(self._data))))

    def physics(self) -> Physics:
        qpos, qvel = (torch.from_numpy(self._part(part).copy()) for part in ("QPOS", "QVEL"))
        body_m, body_quat = torch.from_numpy(self._body_m), torch.from_numpy(self._body_quat)
        self._seen = True
        return Physics(qpos, qvel, body_m, body_quat, torch.from_numpy(self._sensors[:, self._touch]))

    def set_state(self, worlds: Int[Tensor, " k"], start: Start) -> None:
        rows, k = worlds.numpy(), len(worlds)
        fresh = np.zeros((k, self._rows.shape[1]))
        given = {
            "QPOS": start.qpos,
            "CTRL": start.ctrl,
            "MOCAP_POS": start.fixture_m.reshape(k, -1),
            "MOCAP_QUAT": start.fixture_quat.reshape(k, -1),
        }
        if start.qvel is not None:
            given["QVEL"] = start.qvel
        for part, value in given.items():
            fresh[:, self._columns[part]] = value.numpy()
        self._rows[rows] = fresh
        if self._bank is not None:
            self._bank.begin(rows, start.ctrl.numpy())
        self._read(rows.tolist())

    def randomise(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> None:
        check_changes(self.scene, changes, len(worlds))
        for row, world in enumerate(worlds.tolist()):
            if world not in self._models:
                self._models[world] = deepcopy(self._model)
            mine = {name: each[row] for name, each in changes.items()}
            change_model(self._models[world], self._model, mine, self._data[0])
            if self._gravity is not None:
                self._pulls[world] = weights(self._models[world], self._gravity)
        if self._bank is not None:
            self._bank.change(worlds.numpy(), {name: each.cpu().numpy() for name, each in changes.items()})

    def save(self) -> dict[str, Tensor]:
        saved = {"rows": self._rows, "sensors": self._sensors}
        if self._bank is not None:
            saved["reached"] = self._bank.reached
        return {name: torch.from_numpy(array.copy()) for name, array in saved.items()}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        self._rows[:] = saved["rows"].numpy()
        if self._bank is not None:
            self._bank.reached[:] = saved["reached"].numpy()
        self._read(range(self.num_envs))
        if "sensors" in saved:  # older snapshots have none
            self._sensors[:] = saved["sensors"].numpy()

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
        mujoco.mj_setState(self.scene.model, data, self._rows[world], self._signature)
        mujoco.mj_kinematics(self.scene.model, data)
        mujoco.mj_camlight(self.scene.model, data)
        return self._pictures.take(camera, height, width, kind, visuals)

    def close(self) -> None:
        self._pictures.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _part(self, part: str) -> Float[ndarray, "n x"]:
        view: Float[ndarray, "n x"] = self._rows[:, self._columns[part]]
        return view

    def _run(self, part: int, substeps: int) -> None:
        """Step the worlds of one thread."""
        data, rows, signature = self._data[part], self._rows, self._signature
        put, get, kinematics = mujoco.mj_setState, mujoco.mj_getState, mujoco.mj_kinematics
        body_m, body_quat, sensors = data.xpos, data.xquat, data.sensordata
        models, shared = self._models, self._shared[part]
        for i in range(self._bounds[part], self._bounds[part + 1]):
            model = models.get(i, shared)
            put(model, data, rows[i], signature)
            self._advance(i, model, data, substeps)
            get(model, data, rows[i], signature)
            kinematics(model, data)  # body poses of the new state
            self._body_m[i], self._body_quat[i], self._sensors[i] = body_m, body_quat, sensors

    def _run_motors(self, part: int, substeps: int) -> None:
        """As `_run`, in single sub-steps: before each, all servos of this thread's worlds are computed at
        once.
        """
        assert self._bank is not None
        first, end = self._bounds[part], self._bounds[part + 1]
        mine, data, rows, signature = slice(first, end), self._data[part], self._rows, self._signature
        qpos, qvel, ctrl = (
            self._part(name)[mine] for name in ("QPOS", "QVEL", "CTRL")
        )  # as they are now: views
        command = ctrl.copy()
        models = [self._models.get(i, self._shared[part]) for i in range(first, end)]
        servos = [
            (model.actuator_gainprm[:, 0], model.actuator_biasprm[:, :3]) for model in models
        ]  # views, too
        put, get = mujoco.mj_setState, mujoco.mj_getState
        for left in range(substeps - 1, -1, -1):
            drive = self._bank.advance(mine, command, qpos, qvel)
            ctrl[:] = drive.target
            for i, model in enumerate(models, first):
                if self._bank.curved:
                    servos[i - first][0][:], servos[i - first][1][:] = (
                        drive.gain[i - first],
                        drive.bias[i - first],
                    )
                put(model, data, rows[i], signature)
                self._advance(i, model, data, 1, heard=not left)
                get(model, data, rows[i], signature)
                if not left:
                    mujoco.mj_kinematics(model, data)  # body poses of the new state
                    self._body_m[i], self._body_quat[i] = data.xpos, data.xquat
                    self._sensors[i] = data.sensordata
        ctrl[:] = command

    def _advance(self, world: int, model: Any, data: Any, substeps: int, heard: bool = True) -> None:
        """Make sub-steps from the state in `data`. heard: touch sensors are read at the end; before the last
        sub-step nobody reads them.
        """
        if self._pull is not None:
            data.xfrc_applied[:] = self._pulls.get(world, self._pull)
        quiet, loud = self._flags
        if quiet != loud and (silent := substeps - heard):
            model.opt.disableflags = quiet
            mujoco.mj_step(model, data, silent)
            model.opt.disableflags = loud
            substeps -= silent
        if substeps:
            mujoco.mj_step(model, data, substeps)

    def _read(self, worlds: Any) -> None:
        """Read body positions of start states; touch sensors read zero."""
        if self._seen:
            self._body_m, self._body_quat = self._body_m.copy(), self._body_quat.copy()
            self._seen = False
        data = self._data[0]
        for i in worlds:
            model = self._models.get(i, self._model)
            mujoco.mj_setState(model, data, self._rows[i], self._signature)
            mujoco.mj_kinematics(model, data)
            self._body_m[i], self._body_quat[i], self._sensors[i] = data.xpos, data.xquat, 0.0


def _columns(model: Any) -> dict[str, slice]:
    """Columns of each part of MuJoCo's state vector."""
    columns, start = {}, 0
    for part in _PARTS:
        size = mujoco.mj_stateSize(model, int(getattr(mujoco.mjtState, f"mjSTATE_{part}")))
        columns[part] = slice(start, start + size)
        start += size
    return columns


def _touch_columns(scene: Scene) -> list[int]:
    return [int(scene.model.sensor(name).adr[0]) for name in scene.touch]
