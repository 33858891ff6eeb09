"""Scene in Isaac Gym Preview 4, by its tensor interface. Written from its documentation, never run on it.

PhysX runs on the GPU; the state is copied to the host, because it continues through shared memory
(`use_gpu_pipeline` false, which also lets masses and frictions change at any time). Environments overlap and
are separated by collision groups, so that positions in the world and in the environment are the same.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

# isort: off
import frames  # type: ignore[import-not-found] # in this folder, which is on the path of a script
from isaacgym import gymapi, gymtorch  # type: ignore[import-not-found] # before torch, or it raises
import torch
# isort: on


class GymSim:
    """description: of `sim.engines.isaacgym.describe`. slots: of `protocol.slots`."""

    def __init__(self, description: Any, slots: Any) -> None:
        self._it, self._slots = description, slots
        self._actors = description["actors"]
        self._n = len(slots["qpos"])
        self._pending: set[int] = set()  # worlds whose state is in the slots, but not yet in Isaac Gym
        self._gym = gymapi.acquire_gym()
        self._sim = self._create_sim()
        self._envs: list[Any] = []
        self._handles: list[list[Any]] = []  # per environment, per actor
        self._create_envs()
        self._gym.prepare_sim(self._sim)
        self._acquire()
        self._find_places()

    def step(self, substeps: int) -> None:
        self._apply_pending()
        self._targets[:, self._driven] = np.clip(self._slots["ctrl"], self._lowest, self._highest)
        self._gym.set_dof_position_target_tensor(self._sim, gymtorch.unwrap_tensor(self._targets_torch))
        for _ in range(substeps):
            self._gym.simulate(self._sim)
            self._gym.fetch_results(self._sim, True)
        self._read()

    def set_state(self, worlds: list[int]) -> None:
        """Schedule the states in the slots, bodies included, for the next step of Isaac Gym.

        Isaac Gym accepts one indexed write of each kind between steps.
        """
        self._pending.update(worlds)

    def randomise(self, worlds: list[int], changes: list[str]) -> None:
        for row, world in enumerate(worlds):
            scales = {name: self._slots[name][row] for name in changes}
            for actor, handle in zip(self._actors, self._handles[world]):
                self._set_properties(self._envs[world], handle, actor, scales)

    def close(self) -> None:
        self._gym.destroy_sim(self._sim)

    def _create_sim(self) -> Any:
        params = gymapi.SimParams()
        params.dt, params.substeps = self._it["timestep_s"], 1
        params.up_axis = gymapi.UP_AXIS_Z
        params.gravity = gymapi.Vec3(*self._it["gravity_m_s2"])
        params.use_gpu_pipeline = False
        params.physx.use_gpu = self._it["device"] >= 0
        params.physx.solver_type = 1  # temporal Gauss-Seidel
        params.physx.num_position_iterations, params.physx.num_velocity_iterations = 8, 1
        params.physx.contact_offset, params.physx.rest_offset = (
            0.002,
            0.0,
        )  # parts fit with less than a millimetre
        sim = self._gym.create_sim(
            max(0, self._it["device"]), -1, gymapi.SIM_PHYSX, params
        )  # -1: no graphics
        if sim is None:
            raise RuntimeError("gym.create_sim returned None: the GPU or its driver cannot be used")
        return sim

    def _create_envs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            assets = [self._load(folder, actor) for actor in self._actors]
        origin = gymapi.Vec3(0.0, 0.0, 0.0)
        for i in range(self._n):
            env = self._gym.create_env(self._sim, origin, origin, max(1, int(self._n**0.5)))
            handles = []
            for actor, asset in zip(self._actors, assets):
                pose = gymapi.Transform()
                pose.p = gymapi.Vec3(*actor["start_m"])
                pose.r = gymapi.Quat(*frames.xyzw(np.array(actor["start_quat"])).tolist())
                handle = self._gym.create_actor(env, asset, pose, actor["name"], i, 0, 0)
                self._set_properties(env, handle, actor, {})
                handles.append(handle)
            self._envs.append(env)
            self._handles.append(handles)

    def _load(self, folder: str, actor: Any) -> Any:
        options = gymapi.AssetOptions()
        options.fix_base_link = actor["fixed"]
        options.disable_gravity = actor["weightless"]
        options.collapse_fixed_joints = False  # every body keeps its row
        options.default_dof_drive_mode = gymapi.DOF_MODE_POS
        options.angular_damping = options.linear_damping = 0.0
        options.armature = 0.0  # given per joint
        name = actor["name"] + ".xml"
        with open(os.path.join(folder, name), "w") as file:
            file.write(actor["mjcf"])
        asset = self._gym.load_asset(self._sim, folder, name, options)
        if asset is None:
            raise RuntimeError("gym.load_asset returned None for {}".format(name))  # noqa: UP032 - one style here
        return asset

    def _set_properties(self, env: Any, handle: Any, actor: Any, scales: Any) -> None:
        """Set masses, servos, limits, friction and filters, whatever the MJCF importer made of them."""
        self._set_bodies(env, handle, actor, scales.get("mass_scale"))
        if actor["dofs"]:
            self._set_dofs(env, handle, actor, scales)
        self._set_shapes(env, handle, actor, scales.get("friction_scale"))

    def _set_bodies(self, env: Any, handle: Any, actor: Any, scale: Any) -> None:
        names = self._gym.get_actor_rigid_body_names(env, handle)
        bodies = self._gym.get_actor_rigid_body_properties(env, handle)
        for name, body in zip(names, bodies):
            if name in actor["bodies"]:
                it = actor["bodies"][name]
                factor = 1.0 if scale is None else float(scale[it["row"]])
                body.mass = it["mass_kg"] * factor
                body.com = gymapi.Vec3(*it["com_m"])
                rows = [gymapi.Vec3(*(factor * value for value in row)) for row in it["inertia_kg_m2"]]
                body.inertia.x, body.inertia.y, body.inertia.z = rows
        self._gym.set_actor_rigid_body_properties(env, handle, bodies, False)

    def _set_dofs(self, env: Any, handle: Any, actor: Any, scales: Any) -> None:
        props = self._gym.get_actor_dof_properties(env, handle)
        for i, name in enumerate(self._gym.get_actor_dof_names(env, handle)):
            it = actor["dofs"][name]
            kp, kv, own, effort = it["kp"], it["kv"], it["damping"], it["effort"]
            if it["ctrl"] >= 0:
                kp *= float(scales["kp_scale"][it["ctrl"]]) if "kp_scale" in scales else 1.0
                kv *= float(scales["kv_scale"][it["ctrl"]]) if "kv_scale" in scales else 1.0
                effort *= float(scales["strength_scale"][it["ctrl"]]) if "strength_scale" in scales else 1.0
            own *= float(scales["damping_scale"][it["qvel"]]) if "damping_scale" in scales else 1.0
            props["driveMode"][i] = gymapi.DOF_MODE_POS
            props["stiffness"][i], props["damping"][i] = kp, kv + own
            props["hasLimits"][i] = it["limited"]
            props["lower"][i], props["upper"][i] = it["lower"], it["upper"]
            props["effort"][i], props["velocity"][i] = effort, 1e3  # speed is not limited
            props["armature"][i], props["friction"][i] = it["armature"], it["frictionloss"]
        self._gym.set_actor_dof_properties(env, handle, props)

    def _set_shapes(self, env: Any, handle: Any, actor: Any, scale: Any) -> None:
        names = self._gym.get_actor_rigid_body_names(env, handle)
        ranges = self._gym.get_actor_rigid_body_shape_indices(env, handle)
        props = self._gym.get_actor_rigid_shape_properties(env, handle)
        for name, places in zip(names, ranges):
            shapes = actor["bodies"][name]["shapes"] if name in actor["bodies"] else []
            if places.count != len(shapes):
                raise RuntimeError(
                    "{} has {} shapes in Isaac Gym, {} in the scene".format(name, places.count, len(shapes))  # noqa: UP032
                )
            for k, it in enumerate(shapes):
                shape = props[places.start + k]
                shape.friction = it["friction"] * (1.0 if scale is None else float(scale))
                shape.filter = it["filter"]
        self._gym.set_actor_rigid_shape_properties(env, handle, props)

    def _acquire(self) -> None:
        """Get views (n, ...) of Isaac Gym's own tensors; a refresh fills them."""
        gym, sim, n = self._gym, self._sim, self._n
        self._root_torch = gymtorch.wrap_tensor(gym.acquire_actor_root_state_tensor(sim))
        self._dof_torch = gymtorch.wrap_tensor(gym.acquire_dof_state_tensor(sim))
        self._root = self._root_torch.numpy().reshape(n, -1, 13)
        self._body = gymtorch.wrap_tensor(gym.acquire_rigid_body_state_tensor(sim)).numpy().reshape(n, -1, 13)
        self._force = (
            gymtorch.wrap_tensor(gym.acquire_net_contact_force_tensor(sim)).numpy().reshape(n, -1, 3)
        )
        count = gym.get_env_dof_count(self._envs[0])
        self._dof = self._dof_torch.numpy().reshape(n, count, 2) if count else np.zeros((n, 0, 2), np.float32)
        self._targets_torch = torch.zeros(n, count)
        self._targets = self._targets_torch.numpy()
        self._refresh()

    def _find_places(self) -> None:
        """Map names of bodies and joints to rows of Isaac Gym's tensors, the same in all environments."""
        gym, env = self._gym, self._envs[0]
        self._driven = np.zeros(self._slots["ctrl"].shape[1], int)  # actuator -> degree of freedom
        self._lowest, self._highest = np.zeros((2, len(self._driven)), np.float32)
        self._dof_qpos, self._dof_qvel, self._body_from, self._body_to = [], [], [], []
        bodies, dofs = 0, 0
        for actor, handle in zip(self._actors, self._handles[0]):
            for name in gym.get_actor_rigid_body_names(env, handle):
                if name in actor["bodies"]:
                    self._body_from.append(bodies)
                    self._body_to.append(actor["bodies"][name]["row"])
                bodies += 1
            for name in gym.get_actor_dof_names(env, handle):
                it = actor["dofs"][name]
                self._dof_qpos.append(it["qpos"])
                self._dof_qvel.append(it["qvel"])
                if it["ctrl"] >= 0:
                    self._driven[it["ctrl"]] = dofs
                    self._lowest[it["ctrl"]], self._highest[it["ctrl"]] = it["targets"]
                else:
                    self._targets[:, dofs] = it["rest"]
                dofs += 1
        places = dict(zip(self._body_to, self._body_from))
        self._touched = [places[row] for row in self._it["touched_bodies"]]
        self._index = np.array(
            [
                [gym.get_actor_index(e, h, gymapi.DOMAIN_SIM) for h in hs]
                for e, hs in zip(self._envs, self._handles)
            ],
            np.int32,
        )

    def _apply_pending(self) -> None:
        if not self._pending:
            return
        worlds = sorted(self._pending)
        self._pending.clear()
        qpos, qvel = self._slots["qpos"][worlds], self._slots["qvel"][worlds]
        moved = []
        for a, actor in enumerate(self._actors):
            if actor["free_qpos"] >= 0:
                p, v, com_m = actor["free_qpos"], actor["free_qvel"], np.array(actor["com_m"], np.float32)
                self._root[worlds, a] = frames.root_of_free(qpos[:, p : p + 7], qvel[:, v : v + 6], com_m)
            elif actor["fixture"] >= 0:
                self._root[worlds, a, :3] = self._slots["fixture_m"][worlds, actor["fixture"]]
                self._root[worlds, a, 3:7] = frames.xyzw(
                    self._slots["fixture_quat"][worlds, actor["fixture"]]
                )
                self._root[worlds, a, 7:] = 0.0
            else:
                continue
            moved.append(a)
        if moved:
            self._write(
                self._gym.set_actor_root_state_tensor_indexed, self._root_torch, self._index[worlds][:, moved]
            )
        jointed = [a for a, actor in enumerate(self._actors) if actor["dofs"]]
        if jointed:
            self._dof[worlds, :, 0] = qpos[:, self._dof_qpos]
            self._dof[worlds, :, 1] = qvel[:, self._dof_qvel]
            self._write(
                self._gym.set_dof_state_tensor_indexed, self._dof_torch, self._index[worlds][:, jointed]
            )

    def _write(self, call: Any, tensor: Any, index: Any) -> None:
        chosen = torch.from_numpy(np.ascontiguousarray(index).reshape(-1))
        call(self._sim, gymtorch.unwrap_tensor(tensor), gymtorch.unwrap_tensor(chosen), len(chosen))

    def _refresh(self) -> None:
        self._gym.refresh_actor_root_state_tensor(self._sim)
        self._gym.refresh_dof_state_tensor(self._sim)
        self._gym.refresh_rigid_body_state_tensor(self._sim)
        self._gym.refresh_net_contact_force_tensor(self._sim)

    def _read(self) -> None:
        self._refresh()
        slots = self._slots
        slots["qpos"][:, self._dof_qpos] = self._dof[:, :, 0]
        slots["qvel"][:, self._dof_qvel] = self._dof[:, :, 1]
        for a, actor in enumerate(self._actors):
            if actor["free_qpos"] >= 0:
                p, v = actor["free_qpos"], actor["free_qvel"]
                com_m = np.array(actor["com_m"], np.float32)
                slots["qpos"][:, p : p + 7], slots["qvel"][:, v : v + 6] = frames.free_of_root(
                    self._root[:, a], com_m
                )
        slots["body_m"][:, self._body_to] = self._body[:, self._body_from, :3]
        slots["body_quat"][:, self._body_to] = frames.wxyz(self._body[:, self._body_from, 3:7])
        # A touch sensor measures a zone; Isaac Gym reports the sum of forces on a body.
        slots["touch_n"][:] = np.linalg.norm(self._force[:, self._touched], axis=-1)
