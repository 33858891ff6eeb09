"""MuJoCo Warp: all worlds at once on an NVIDIA GPU, from the same MJCF; its CPU device is for parity tests.

The state stays on the device, and torch reads and writes it in place. On a GPU the sub-steps of one `step`
are captured as a CUDA graph. On the CPU device a world repeats exactly; on a GPU sums have no fixed order, so
a world repeats up to float32 rounding, which contacts amplify over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import mujoco
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import Bool, Float, Int
from sim.engines.changes import check_changes
from sim.engines.mjwarp.buffer_sizes import buffer_sizes, check_fits, size_bytes, too_large
from sim.engines.mujoco.picture import ScenePictures
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation

try:
    import mujoco_warp as mjw
    import warp as wp

    from sim.engines.mjwarp.change import Changes
    from sim.engines.mjwarp.kernels import note_peaks
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("mujoco_warp", "warp"):
        raise
    raise MissingDependencyError(
        f"The engine mjwarp needs the package '{error.name}', which is not installed. Run: "
        f"{pip_install('gpu')}"
    ) from error

_STATE = ("qpos", "qvel", "act", "qacc_warmstart", "ctrl", "mocap_pos", "mocap_quat", "time", "sensordata")
_PROBE = 8  # worlds with which the memory per world is measured
_WORK_SPACE = 1.5  # factor for what a step allocates: 1.3 to 1.4 in the scenes of sim/assets


class WarpEngine:
    """See `sim.engines.protocol.Engine`. device: "cuda", "cuda:1" or "cpu".

    contacts: buffer size per world, instead of an estimate from the scene. Raises EnvError without a GPU, and
    when the worlds do not fit into its memory.
    """

    def __init__(
        self, scene: Scene, num_envs: int, device: str | torch.device = "cuda", contacts: int | None = None
    ) -> None:
        self.scene, self.num_envs, self.device = scene, num_envs, _torch_device(device)
        self._warp_device = wp.device_from_torch(self.device)
        self._graphs: dict[int, Any] = {}  # substeps -> captured graph
        self._pictures = ScenePictures(scene.model)
        model = deepcopy(scene.model)
        # MuJoCo Warp never resets a world by itself, and lacks the flag for it.
        model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        with wp.ScopedDevice(self._warp_device):
            self._model = _put(model)
            self._sizes = buffer_sizes(model, self._model.nxn_geom_pair_filtered.numpy(), contacts)
            self._data = self._make_data(model)
            self._peaks = wp.zeros(2, dtype=int)
        self._changes = Changes(self._model, num_envs, scene.model)
        self._state = {name: wp.to_torch(getattr(self._data, name)) for name in _STATE}
        self._bodies = wp.to_torch(self._data.xpos), wp.to_torch(self._data.xquat)
        self._peaks_now = wp.to_torch(self._peaks)
        self._peaks_seen = torch.zeros(2, dtype=torch.int32, pin_memory=self.device.type == "cuda")
        self._peaks_come: Any = None  # torch.cuda.Event
        touch = [int(scene.model.sensor(name).adr[0]) for name in scene.touch]
        self._touch = torch.tensor(touch, dtype=torch.long, device=self.device)
        self._begin(model)

    def step(self, ctrl: Float[Tensor, "n nu"], substeps: int) -> None:
        """Advance all worlds. Raises EnvError when the contact buffer overflowed; on a GPU one step late, to
        avoid waiting.
        """
        self._check_room()
        self._state["ctrl"].copy_(ctrl)
        if self.device.type == "cuda" and wp.is_mempool_enabled(self._warp_device):
            self._launch_graph(substeps)
        else:
            self._in_warp(lambda: self._advance(substeps))
        self._fetch_peaks()

    def physics(self) -> Physics:
        state, (body_m, body_quat) = self._state, self._bodies
        touch = state["sensordata"][:, self._touch]
        return Physics(state["qpos"].clone(), state["qvel"].clone(), body_m.clone(), body_quat.clone(), touch)

    def set_state(self, worlds: Int[Tensor, " k"], start: Start) -> None:
        rows, given = worlds.to(self.device), _fields(start)
        for name in _STATE:  # warm start, time and sensors too: nothing remains of the last episode
            value = given.get(name)
            self._state[name][rows] = 0.0 if value is None else value.to(self.device, torch.float32)
        self._place_bodies()

    def set_state_where(self, mask: Bool[Tensor, " n"], start: Start) -> None:
        given = _fields(start)
        for name in _STATE:
            state, value = self._state[name], given.get(name)
            fresh = 0.0 if value is None else value.to(torch.float32)
            state.copy_(torch.where(mask.view(-1, *[1] * (state.ndim - 1)), fresh, state))
        self._place_bodies()

    def randomise(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> None:
        check_changes(self.scene, changes, len(worlds))
        if self._changes.apply(worlds.to(self.device), changes):
            self._graphs.clear()

    def randomise_where(self, mask: Bool[Tensor, " n"], changes: Mapping[str, Tensor]) -> None:
        self._changes.apply_where(mask, changes)

    def save(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self._state.items()}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        for name, tensor in self._state.items():
            tensor.copy_(saved[name])
        self._place_bodies()

    def render(
        self,
        world: int,
        camera: str,
        height: int,
        width: int,
        kind: str = "rgb",
        visuals: VisualRandomisation | None = None,
    ) -> Tensor:
        model, data = self.scene.model, self._pictures.data
        data.qpos[:] = self._state["qpos"][world].cpu().numpy()
        data.mocap_pos[:] = self._state["mocap_pos"][world].cpu().numpy()
        data.mocap_quat[:] = self._state["mocap_quat"][world].cpu().numpy()
        mujoco.mj_kinematics(model, data)
        mujoco.mj_camlight(model, data)
        return self._pictures.take(camera, height, width, kind, visuals)

    def close(self) -> None:
        self._graphs.clear()
        self._pictures.close()

    def _make_data(self, model: Any) -> Any:
        """Data of all worlds. A few worlds are measured first, so that the error for a GPU that is too small
        can name how many fit.
        """
        if self._warp_device.is_cuda:
            probe = _WORK_SPACE * size_bytes(self._new_data(model, _PROBE)) / _PROBE
            check_fits(self.num_envs, probe, self._warp_device.free_memory)
        try:
            return self._new_data(model, self.num_envs)
        except RuntimeError as error:
            raise self._sentence(error) from error

    def _new_data(self, model: Any, worlds: int) -> Any:
        contacts, rows = self._sizes
        return mjw.make_data(model, nworld=worlds, naconmax=contacts * worlds, njmax=rows)

    def _begin(self, model: Any) -> None:
        data = mujoco.MjData(model)
        first = (model.qpos0, torch.zeros(model.nu), data.mocap_pos, data.mocap_quat)
        tiled = (torch.as_tensor(each, dtype=torch.float32) for each in first)
        start = Start(*(each.expand(self.num_envs, *each.shape) for each in tiled))
        self.set_state(torch.arange(self.num_envs), start)

    def _advance(self, substeps: int) -> None:
        data = self._data
        for _ in range(substeps):
            mjw.step(self._model, data)
            found = [data.nacon, data.ncollision, data.nefc]
            wp.launch(note_peaks, dim=self.num_envs, inputs=found, outputs=[self._peaks])
        mjw.kinematics(self._model, data)  # bodies belong to the state that was reached

    def _place_bodies(self) -> None:
        self._in_warp(lambda: mjw.kinematics(self._model, self._data))

    def _launch_graph(self, substeps: int) -> None:
        if substeps not in self._graphs:
            before = self.save()
            self._in_warp(
                lambda: self._advance(substeps)
            )  # builds and loads kernels, which is not allowed during a capture
            with self._ordered(), wp.ScopedDevice(self._warp_device), wp.ScopedCapture() as capture:
                self._advance(substeps)
            self._graphs[substeps] = capture.graph
            for name, tensor in self._state.items():
                tensor.copy_(before[name])
        self._in_warp(lambda: wp.capture_launch(self._graphs[substeps]))

    def _in_warp(self, work: Callable[[], None]) -> None:
        try:
            with self._ordered(), wp.ScopedDevice(self._warp_device):
                work()
        except RuntimeError as error:
            raise self._sentence(error) from error

    @contextmanager
    def _ordered(self) -> Iterator[None]:
        """On a GPU Warp and torch have a stream each: each waits for the other's earlier work."""
        if not self._warp_device.is_cuda:
            yield
            return
        mine, torchs = wp.get_stream(self._warp_device), wp.stream_from_torch(self.device)
        mine.wait_stream(torchs)
        yield
        torchs.wait_stream(mine)

    def _fetch_peaks(self) -> None:
        if self.device.type == "cuda":
            self._peaks_seen.copy_(self._peaks_now, non_blocking=True)
            self._peaks_come = torch.cuda.Event()
            self._peaks_come.record(torch.cuda.current_stream(self.device))
        else:
            self._peaks_seen.copy_(self._peaks_now)
            self._check_room()

    def _check_room(self) -> None:
        if self._peaks_come is not None and not self._peaks_come.query():
            return  # looked at in one of the next steps: waiting here would stop the pipeline
        contacts, rows = self._peaks_seen.tolist()
        if contacts > self._sizes.contacts * self.num_envs or rows > self._sizes.rows:
            raise EnvError(
                f"MuJoCo Warp found no room for its contacts: {contacts} in {self.num_envs} worlds and up to "
                f"{rows} rows in one, with room for {self._sizes.contacts} contacts and {self._sizes.rows} "
                f"rows a world. Give more: contacts={2 * self._sizes.contacts}."
            )

    def _sentence(self, error: RuntimeError) -> RuntimeError | EnvError:
        """For a full GPU an error with the number of worlds that fit, else the error itself."""
        full = isinstance(error, torch.cuda.OutOfMemoryError) or "Failed to allocate" in str(error)
        if not full or not self._warp_device.is_cuda:
            return error
        data = getattr(self, "_data", None)
        worlds = self.num_envs if data is not None else _PROBE
        with wp.ScopedDevice(self._warp_device):
            measured = data or self._new_data(deepcopy(self.scene.model), _PROBE)
            bytes_per_world = _WORK_SPACE * size_bytes(measured) / worlds
        free = self._warp_device.free_memory + (0 if data is None else size_bytes(data))
        return too_large(self.num_envs, bytes_per_world, free)


def _fields(start: Start) -> dict[str, Tensor]:
    """Arrays of the state that a start gives; all others are zero."""
    given = {
        "qpos": start.qpos,
        "ctrl": start.ctrl,
        "mocap_pos": start.fixture_m,
        "mocap_quat": start.fixture_quat,
    }
    return given if start.qvel is None else given | {"qvel": start.qvel}


def _torch_device(device: str | torch.device) -> torch.device:
    """Torch device with its index. Raises EnvError where Warp or torch cannot use it."""
    wanted = torch.device(device)
    wp.config.quiet = True
    wp.init()
    if wanted.type == "cpu":
        return wanted
    if wanted.type != "cuda":
        raise ConfigError(f"The engine mjwarp runs on the devices cuda and cpu, not on {wanted}.")
    count = min(wp.get_cuda_device_count(), torch.cuda.device_count())
    if count == 0:
        raise EnvError(
            f"The engine mjwarp found no NVIDIA GPU for device={wanted}: it needs one, with a driver of CUDA "
            "12 or newer and a torch built for CUDA. Use engine=mujoco on this machine (device=cpu is for "
            "tests: it is slow)."
        )
    index = wanted.index if wanted.index is not None else torch.cuda.current_device()
    if index >= count:
        raise EnvError(f"There is no device cuda:{index}: found {count} GPUs, numbered from 0.")
    return torch.device("cuda", index)


def _put(model: Any) -> Any:
    """Model on the device. Raises ConfigError for a scene with a feature that MuJoCo Warp lacks."""
    try:
        put = mjw.put_model(model)
    except (NotImplementedError, ValueError) as error:
        raise ConfigError(f"MuJoCo Warp cannot simulate this scene: {error} Use engine=mujoco.") from error
    put.opt.graph_conditional = wp.is_conditional_graph_supported()
    return put
