"""Isaac Gym Preview 4 as an engine, in a process of its own: its binaries load in Python 3.6 to 3.8 only.

Tested against a worker with C MuJoCo behind the same protocol, and against a recording mock of its interface;
not run on Isaac Gym itself (docs/engines-gpu.md). PhysX keeps contacts between steps and sums in no fixed
order: a world is a function of its start and commands only up to that.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.shapes import Float, Int
from sim.engines.changes import check_changes
from sim.engines.forward_kinematics import place
from sim.engines.isaacgym import protocol
from sim.engines.isaacgym.describe import describe
from sim.engines.isaacgym.diagnose import interpreter
from sim.engines.isaacgym.process import WORKER, GymWorker
from sim.engines.mujoco.picture import ScenePictures
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation

_SAVED = ("qpos", "qvel", "ctrl", "fixture_m", "fixture_quat", "body_m", "body_quat", "touch_n")


class IsaacGymEngine:
    """See `sim.engines.protocol.Engine`; tensors are float32 on the host. gpu: number of PhysX's device, -1:
    the CPU.

    timeout_s: for a step; starting may take ten times as long. command: replaces Isaac Gym's interpreter and
    worker. Raises MissingDependencyError without Isaac Gym, ConfigError for a scene that it cannot simulate.
    """

    def __init__(
        self,
        scene: Scene,
        num_envs: int,
        gpu: int = 0,
        timeout_s: float = 60.0,
        command: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.scene, self.num_envs, self.device = scene, num_envs, torch.device("cpu")
        self._timeout_s = timeout_s
        description = {**describe(scene), "device": gpu}
        model = scene.model
        nt, nf = len(scene.touch), len(scene.fixtures)
        sizes = {
            "n": num_envs,
            "nq": model.nq,
            "nv": model.nv,
            "nu": model.nu,
            "nb": model.nbody,
            "nf": nf,
            "nt": nt,
        }
        sizes = {name: int(size) for name, size in sizes.items()}
        size_bytes = protocol.size_bytes(sizes)
        self._worker = GymWorker(command or [interpreter(), str(WORKER)], size_bytes, environ)
        self._memory = mmap.mmap(self._worker.memory, size_bytes)
        self._slots = {
            name: torch.from_numpy(array) for name, array in protocol.slots(self._memory, sizes).items()
        }
        self._pictures = ScenePictures(model)
        self._placed = mujoco.MjData(model)
        hello = self._worker.ask(protocol.HELLO, 10 * timeout_s)
        if hello["version"] != protocol.VERSION:
            self._worker.end()
            raise EnvError(
                f"The worker speaks version {hello['version']} of the protocol, expected {protocol.VERSION}."
            )
        self._begin()
        self._worker.ask(protocol.INIT, 10 * timeout_s, sizes=sizes, description=description)
        self._worker.ask(protocol.SET_STATE, timeout_s, worlds=list(range(num_envs)))

    def step(self, ctrl: Float[Tensor, "n nu"], substeps: int) -> None:
        """Step all worlds. Raises EnvError with the worker's last output when it fails, dies or hangs."""
        self._slots["ctrl"].copy_(ctrl)
        self._worker.ask(protocol.STEP, self._timeout_s, substeps=substeps)

    def physics(self) -> Physics:
        slots = self._slots
        names = ("qpos", "qvel", "body_m", "body_quat", "touch_n")
        return Physics(*(slots[name].clone() for name in names))

    def set_state(self, worlds: Int[Tensor, " k"], start: Start) -> None:
        self._put(worlds, start)
        self._worker.ask(protocol.SET_STATE, self._timeout_s, worlds=worlds.tolist())

    def randomise(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> None:
        check_changes(self.scene, changes, len(worlds))
        for name, value in changes.items():
            self._slots[name][: len(worlds)] = value.to(torch.float32)
        self._worker.ask(protocol.RANDOMISE, self._timeout_s, worlds=worlds.tolist(), changes=sorted(changes))

    def save(self) -> dict[str, Tensor]:
        """Positions, speeds and targets, without the contacts of PhysX: motion continues nearly as before."""
        return {name: self._slots[name].clone() for name in _SAVED}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        for name in _SAVED:
            self._slots[name].copy_(saved[name])
        self._worker.ask(protocol.SET_STATE, self._timeout_s, worlds=list(range(self.num_envs)))

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
        self._place(data, world)
        mujoco.mj_camlight(self.scene.model, data)
        return self._pictures.take(camera, height, width, kind, visuals)

    def close(self) -> None:
        self._pictures.close()
        self._worker.close()

    def _begin(self) -> None:
        model, n = self.scene.model, self.num_envs
        first = (model.qpos0, np.zeros(model.nu), self._placed.mocap_pos, self._placed.mocap_quat)
        tiled = (torch.as_tensor(each, dtype=torch.float32) for each in first)
        self._put(torch.arange(n), Start(*(each.expand(n, *each.shape) for each in tiled)))

    def _put(self, worlds: Tensor, start: Start) -> None:
        """Write a state into the shared memory, bodies too: Isaac Gym itself places them only in its next
        step.
        """
        slots, data = self._slots, self._placed
        slots["qvel"][worlds] = 0.0 if start.qvel is None else start.qvel.to(torch.float32)
        slots["touch_n"][worlds] = 0.0
        given = {
            "qpos": start.qpos,
            "ctrl": start.ctrl,
            "fixture_m": start.fixture_m,
            "fixture_quat": start.fixture_quat,
        }
        for name, value in given.items():
            slots[name][worlds] = value.to(torch.float32)
        for world in worlds.tolist():
            self._place(data, world)
            slots["body_m"][world] = torch.from_numpy(data.xpos).float()
            slots["body_quat"][world] = torch.from_numpy(data.xquat).float()

    def _place(self, data: mujoco.MjData, world: int) -> None:
        place(
            self.scene.model,
            data,
            *(self._slots[name][world].numpy() for name in ("qpos", "fixture_m", "fixture_quat")),
        )
