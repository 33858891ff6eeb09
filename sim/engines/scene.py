"""Scene: one MJCF for every engine, compiled once, and the indices of its names in arrays.

MuJoCo's compiler defines what a model means, whichever engine moves it. Joints, bodies and actuators have the
order of the compiled model in all arrays.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mujoco
from numpy import ndarray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Float
from sim.actuators.motors import ServoMotors
from sim.engines.meshes import check_meshes


@dataclass(frozen=True)
class Scene:
    """A compiled scene.

    nq, nv, nu = sizes of qpos, qvel and ctrl; nb = bodies, the world first; nf = fixtures; nt = touch
    sensors. Fixtures are bodies without physics that an episode places (MJCF: mocap bodies), such as a hole.
    """

    model: Any  # mujoco.MjModel; shared, so nothing may change it
    xml: str  # complete MJCF, for engines in other processes
    motors: ServoMotors | None = None  # actuator models of its servos; None: only what the MJCF says
    bare: Any = None  # `model` without purely visual shapes, for computing motion; None: there is none

    def body(self, name: str) -> int:
        """Index of a body in `Physics.body_m`."""
        return self._place("body", name, self.bodies)

    @cached_property
    def bodies(self) -> tuple[str, ...]:
        return tuple(self.model.body(i).name for i in range(self.model.nbody))

    @cached_property
    def joints(self) -> tuple[str, ...]:
        return tuple(self.model.joint(i).name for i in range(self.model.njnt))

    @cached_property
    def actuators(self) -> tuple[str, ...]:
        return tuple(self.model.actuator(i).name for i in range(self.model.nu))

    @cached_property
    def fixtures(self) -> tuple[str, ...]:
        """Names of fixtures, in the order of `Start.fixture_m`."""
        order = sorted((int(row), i) for i, row in enumerate(self.model.body_mocapid) if row >= 0)
        return tuple(self.bodies[i] for _, i in order)

    @cached_property
    def touch(self) -> tuple[str, ...]:
        """Names of touch sensors, in the order of `Physics.touch_n`."""
        kind = int(mujoco.mjtSensor.mjSENS_TOUCH)
        return tuple(
            self.model.sensor(i).name
            for i in range(self.model.nsensor)
            if int(self.model.sensor_type[i]) == kind
        )

    def qpos(self, joint: str) -> slice:
        """Columns of a joint in qpos: one, or seven (position, quaternion wxyz) for a free joint."""
        i = self._place("joint", joint, self.joints)
        start = int(self.model.jnt_qposadr[i])
        return slice(start, start + (7 if self._is_free(i) else 1))

    def qvel(self, joint: str) -> slice:
        """Columns of a joint in qvel: one, or six (linear in the world frame, angular in the body frame) for
        a free joint.
        """
        i = self._place("joint", joint, self.joints)
        start = int(self.model.jnt_dofadr[i])
        return slice(start, start + (6 if self._is_free(i) else 1))

    def joint_range(self, joint: str) -> tuple[float, float]:
        """Limits of a slide [m] or a hinge [rad]. Without limits, as a continuous joint of a URDF: infinite
        for a slide, -2 pi to 2 pi for a hinge.
        """
        i = self._place("joint", joint, self.joints)
        if self.model.jnt_limited[i]:
            low, high = self.model.jnt_range[i].tolist()
            return low, high
        is_hinge = int(self.model.jnt_type[i]) == int(mujoco.mjtJoint.mjJNT_HINGE)
        most = 2.0 * math.pi if is_hinge else math.inf
        return -most, most

    def ctrl(self, actuator: str) -> int:
        return self._place("actuator", actuator, self.actuators)

    def site(self, name: str) -> tuple[int, Float[ndarray, " 3"], Float[ndarray, " 4"]]:
        """Body of a site, its position [m] and quaternion in that body's frame."""
        sites = tuple(self.model.site(i).name for i in range(self.model.nsite))
        i = self._place("site", name, sites)
        return int(self.model.site_bodyid[i]), self.model.site_pos[i].copy(), self.model.site_quat[i].copy()

    def camera(self, name: str) -> int:
        return self._place("camera", name, tuple(self.model.camera(i).name for i in range(self.model.ncam)))

    @cached_property
    def video_camera(self) -> str:
        """Camera of videos: "view", else the first with a name, else "" for a free one."""
        names = [name for i in range(self.model.ncam) if (name := self.model.camera(i).name)]
        return "view" if "view" in names else next(iter(names), "")

    def fixture(self, name: str) -> int:
        """Index of a fixture in a `Start`."""
        return self._place("fixture", name, self.fixtures)

    @property
    def timestep_s(self) -> float:
        return float(self.model.opt.timestep)

    def _is_free(self, joint: int) -> bool:
        return int(self.model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_FREE)

    def _place(self, kind: str, name: str, names: tuple[str, ...]) -> int:
        if name not in names:
            raise UnknownNameError(kind, name, tuple(each for each in names if each))
        return names.index(name)


def compile_scene(scene: Path, robot: Path | None = None, edit: Any = None) -> Scene:
    """Attach a robot (MJCF or URDF) to a scene at the origin, and compile both.

    edit(spec): changes the MJCF before it is compiled, for tasks with options. Raises ConfigError with the
    compiler's message, and for missing meshes.
    """
    for path in (scene, robot):
        if path is not None and not path.is_file():
            raise ConfigError(f"There is no robot or scene file {path}. Give the path of an MJCF (.xml).")
    mujoco.set_mju_user_warning(_ignore_warning)
    try:
        spec = mujoco.MjSpec.from_file(str(scene))
        check_meshes(spec, scene)
        if robot is not None:
            part = mujoco.MjSpec.from_file(str(robot))
            check_meshes(part, robot)
            part.default.name = "robot"  # MuJoCo cannot read an unnamed class that it has written
            spec.attach(part, frame=spec.worldbody.add_frame(), prefix="")
        if edit is not None:
            edit(spec)
        # Else MuJoCo restarts a diverged world by itself, and its episode goes on from the MJCF's pose.
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        with warnings.catch_warnings():  # MuJoCo 4 warns of unnamed classes; this one is named above
            warnings.filterwarnings("ignore", "Attaching a spec with an empty prefix", UserWarning)
            bare = spec.copy()  # a compiled specification cannot be compiled again with other options
            bare.compiler.discardvisual = True
            model = spec.compile()
            return Scene(model, spec.to_xml(), bare=bare.compile())
    except (ValueError, mujoco.FatalError) as error:
        raise ConfigError(
            f"MuJoCo cannot compile {scene if robot is None else robot}: {' '.join(str(error).split())}"
        ) from error


def _ignore_warning(message: str) -> None:
    """Ignore MuJoCo's warnings: its own handler writes MUJOCO_LOG.TXT into the working folder, and callers
    check the state.
    """
