"""A world in which joints jump to their targets, free roots fall without meeting anything, and calls are
recorded.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np

if "torch" in sys.modules and "isaacgym.gymtorch" not in sys.modules and "pytest" not in sys.modules:
    raise ImportError("PyTorch was imported before isaacgym modules.")

SIM_PHYSX, UP_AXIS_Z, DOMAIN_SIM = "SIM_PHYSX", "UP_AXIS_Z", "DOMAIN_SIM"
DOF_MODE_NONE, DOF_MODE_POS, DOF_MODE_EFFORT = 0, 1, 3
_DOF = [
    *(
        ("hasLimits", bool),
        ("lower", "f4"),
        ("upper", "f4"),
        ("driveMode", "i4"),
        ("velocity", "f4"),
        ("effort", "f4"),
    ),
    *(("stiffness", "f4"), ("damping", "f4"), ("friction", "f4"), ("armature", "f4")),
]
CALLS: list[tuple[str, Any]] = []  # what tests ask about afterwards


@dataclass
class Vec3:
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0


@dataclass
class Quat:
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    w: float = 1.0


@dataclass
class Mat33:
    x: Vec3 = field(default_factory=Vec3)
    y: Vec3 = field(default_factory=Vec3)
    z: Vec3 = field(default_factory=Vec3)


@dataclass
class Transform:
    p: Vec3 = field(default_factory=Vec3)
    r: Quat = field(default_factory=Quat)


class SimParams:
    def __init__(self) -> None:
        self.dt, self.substeps, self.up_axis, self.gravity = 1 / 60, 2, "UP_AXIS_Y", Vec3(0.0, -9.8, 0.0)
        self.use_gpu_pipeline = True
        self.physx = SimpleNamespace(
            use_gpu=False, solver_type=1, num_position_iterations=4, num_velocity_iterations=1,
            contact_offset=0.02, rest_offset=0.001,
        )  # fmt: skip


class AssetOptions:
    def __init__(self) -> None:
        self.fix_base_link = self.disable_gravity = self.collapse_fixed_joints = False
        self.default_dof_drive_mode, self.armature = DOF_MODE_NONE, 0.0
        self.angular_damping, self.linear_damping = 0.5, 0.0


@dataclass
class Asset:
    options: AssetOptions
    bodies: list[str]
    dofs: list[str]
    shapes: list[int]  # per body


@dataclass
class Actor:
    asset: Asset
    pose: Transform
    group: int
    index: int
    body_props: list[Any]
    shape_props: list[Any]
    dof_props: Any


class Gym:
    def __init__(self) -> None:
        self.envs: list[list[Actor]] = []
        self.written: set[str] = set()

    def create_sim(self, compute_device: int, graphics_device: int, type: str, params: SimParams) -> Any:
        self.params = params
        CALLS.append(("create_sim", (compute_device, graphics_device, type)))
        return "sim"

    def load_asset(self, sim: str, rootpath: str, filename: str, options: AssetOptions) -> Asset:
        world = ElementTree.parse(Path(rootpath) / filename).find("worldbody")
        assert world is not None
        bodies = list(world.iter("body"))
        dofs = [joint.get("name", "") for body in bodies for joint in body.findall("joint")]
        shapes = [len(body.findall("geom")) for body in bodies]
        return Asset(options, [body.get("name", "") for body in bodies], dofs, shapes)

    def create_env(self, sim: str, lower: Vec3, upper: Vec3, num_per_row: int) -> int:
        assert lower == upper == Vec3()
        self.envs.append([])
        return len(self.envs) - 1

    def create_actor(
        self,
        env: int,
        asset: Asset,
        pose: Transform,
        name: str,
        group: int,
        filter: int,
        segmentationId: int = 0,
    ) -> int:
        bodies = [SimpleNamespace(mass=9.0, com=Vec3(), inertia=Mat33()) for _ in asset.bodies]
        shapes = [SimpleNamespace(friction=9.0, filter=filter) for _ in range(sum(asset.shapes))]
        index = sum(len(actors) for actors in self.envs)
        dofs = np.zeros(len(asset.dofs), _DOF)
        self.envs[env].append(Actor(asset, pose, group, index, bodies, shapes, dofs))
        return len(self.envs[env]) - 1

    def get_actor_rigid_body_names(self, env: int, actor: int) -> list[str]:
        return self.envs[env][actor].asset.bodies

    def get_actor_dof_names(self, env: int, actor: int) -> list[str]:
        return self.envs[env][actor].asset.dofs

    def get_actor_rigid_body_properties(self, env: int, actor: int) -> list[Any]:
        return self.envs[env][actor].body_props

    def set_actor_rigid_body_properties(
        self, env: int, actor: int, props: list[Any], recomputeInertia: bool = False
    ) -> bool:
        assert not recomputeInertia
        self.envs[env][actor].body_props = props
        return True

    def get_actor_dof_properties(self, env: int, actor: int) -> Any:
        return self.envs[env][actor].dof_props.copy()

    def set_actor_dof_properties(self, env: int, actor: int, props: Any) -> bool:
        self.envs[env][actor].dof_props = props
        return True

    def get_actor_rigid_body_shape_indices(self, env: int, actor: int) -> list[Any]:
        counts = self.envs[env][actor].asset.shapes
        return [SimpleNamespace(start=sum(counts[:i]), count=count) for i, count in enumerate(counts)]

    def get_actor_rigid_shape_properties(self, env: int, actor: int) -> list[Any]:
        return self.envs[env][actor].shape_props

    def set_actor_rigid_shape_properties(self, env: int, actor: int, props: list[Any]) -> bool:
        self.envs[env][actor].shape_props = props
        return True

    def get_env_dof_count(self, env: int) -> int:
        return sum(len(actor.asset.dofs) for actor in self.envs[env])

    def get_actor_index(self, env: int, actor: int, domain: str) -> int:
        assert domain == DOMAIN_SIM
        return self.envs[env][actor].index

    def prepare_sim(self, sim: str) -> bool:
        self.actors = [actor for actors in self.envs for actor in actors]
        self.bodies = [i for i, actor in enumerate(self.actors) for _ in actor.asset.bodies]
        self.dofs = [i for i, actor in enumerate(self.actors) for _ in actor.asset.dofs]
        self.root = np.zeros((len(self.actors), 13), np.float32)
        for row, actor in zip(self.root, self.actors, strict=True):
            p, r = actor.pose.p, actor.pose.r
            row[:7] = p.x, p.y, p.z, r.x, r.y, r.z, r.w
        self.dof = np.zeros((len(self.dofs), 2), np.float32)
        # What Isaac Gym hands out: filled by refresh, read by set.
        self.shown = {"root": self.root.copy(), "dof": self.dof.copy()}
        self.shown["body"] = np.zeros((len(self.bodies), 13), np.float32)
        self.shown["force"] = np.zeros((len(self.bodies), 3), np.float32)
        self.target = np.zeros(len(self.dofs), np.float32)
        return True

    def acquire_actor_root_state_tensor(self, sim: str) -> Any:
        return self.shown["root"]

    def acquire_dof_state_tensor(self, sim: str) -> Any:
        return self.shown["dof"]

    def acquire_rigid_body_state_tensor(self, sim: str) -> Any:
        return self.shown["body"]

    def acquire_net_contact_force_tensor(self, sim: str) -> Any:
        return self.shown["force"]

    def refresh_actor_root_state_tensor(self, sim: str) -> bool:
        self.shown["root"][:] = self.root
        return True

    def refresh_dof_state_tensor(self, sim: str) -> bool:
        self.shown["dof"][:] = self.dof
        return True

    def refresh_rigid_body_state_tensor(self, sim: str) -> bool:
        """Every body stands at its root, moved along x by its place in the actor [dm]."""
        self.shown["body"][:] = self.root[self.bodies]
        for i, actor in enumerate(self.bodies):
            self.shown["body"][i, 0] += 0.1 * (i - self.bodies.index(actor))
        return True

    def refresh_net_contact_force_tensor(self, sim: str) -> bool:
        """3-4-12 triangles: row i feels 13 i newtons."""
        self.shown["force"][:] = np.arange(len(self.bodies))[:, None] * np.array([3.0, 4.0, 12.0], np.float32)
        return True

    def set_dof_position_target_tensor(self, sim: str, targets: Any) -> bool:
        self.target[:] = targets.reshape(-1)
        return True

    def set_actor_root_state_tensor_indexed(self, sim: str, states: Any, indices: Any, count: int) -> bool:
        self._only_once("root", indices, count)
        self.root[indices] = states[indices]
        return True

    def set_dof_state_tensor_indexed(self, sim: str, states: Any, indices: Any, count: int) -> bool:
        self._only_once("dof", indices, count)
        chosen = np.isin(self.dofs, indices)
        self.dof[chosen] = states[chosen]
        return True

    def _only_once(self, kind: str, indices: Any, count: int) -> None:
        assert kind not in self.written, "only the last indexed write before a step counts"
        assert indices.dtype == np.int32
        assert len(indices) == count
        self.written.add(kind)
        CALLS.append((f"set {kind}", indices.tolist()))

    def simulate(self, sim: str) -> None:
        self.written.clear()
        self.dof[:, 1] = (self.target - self.dof[:, 0]) / self.params.dt
        self.dof[:, 0] = self.target
        for row, actor in zip(self.root, self.actors, strict=True):
            if not actor.asset.options.fix_base_link:
                row[9] += self.params.gravity.z * self.params.dt
                row[:3] += row[7:10] * self.params.dt
        CALLS.append(("simulate", None))

    def fetch_results(self, sim: str, wait: bool) -> None:
        assert wait

    def destroy_sim(self, sim: str) -> None:
        CALLS.append(("destroy_sim", sim))


GYM = Gym()


def acquire_gym() -> Gym:
    return GYM
