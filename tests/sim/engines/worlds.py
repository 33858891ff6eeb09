"""Small scenes with known results, and helpers to run them in every engine."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from sim.engines.protocol import Engine, Physics, Start
from sim.engines.scene import Scene
from sim.engines.table import make_engine, takes_option
from sim.tasks.table import TaskOptions

GRAVITY_M_S2 = 9.81
# Engines that every test of physics runs in. MuJoCo Warp compiles for minutes: test_mjwarp.py holds it to C
# MuJoCo.
ENGINES = [pytest.param("mujoco"), pytest.param("pybullet", marks=pytest.mark.pybullet)]


def scene_of(xml: str, **option: Any) -> Scene:
    """A scene from the inner part of an MJCF; options as attributes of <option>."""
    words = " ".join(f'{key}="{value}"' for key, value in {"integrator": "implicitfast", **option}.items())
    spec = mujoco.MjSpec.from_string(
        f'<mujoco><compiler angle="radian"/><option {words}><flag '
        f'autoreset="disable"/></option>{xml}</mujoco>'
    )
    return Scene(spec.compile(), spec.to_xml())


def engine_of(name: str, scene: Scene, num_envs: int = 1) -> Engine:
    threads = 1 if takes_option(name, "threads") else 0
    return make_engine(name, scene, num_envs, TaskOptions(threads=threads, device="cpu"))


def start_of(scene: Scene, num: int = 1, **given: Any) -> Start:
    """The model's own start with some of it replaced: qpos, qvel, ctrl, fixture_m, fixture_quat, one row for
    all.
    """
    data = mujoco.MjData(scene.model)
    own = {
        "qpos": scene.model.qpos0,
        "ctrl": data.ctrl,
        "fixture_m": data.mocap_pos,
        "fixture_quat": data.mocap_quat,
    }
    rows = {key: np.asarray(given.get(key, own.get(key)), dtype=np.float64) for key in {*own, *given}}
    return Start(**{key: torch.from_numpy(row).expand(num, *row.shape).clone() for key, row in rows.items()})


def begin(name: str, scene: Scene, num: int = 1, **given: Any) -> Engine:
    engine = engine_of(name, scene, num)
    engine.set_state(torch.arange(num), start_of(scene, num, **given))
    return engine


def run(engine: Engine, seconds: float, ctrl: Tensor | None = None) -> Physics:
    """Run so long with one command for all worlds."""
    command = torch.zeros(engine.scene.model.nu) if ctrl is None else ctrl
    steps = round(seconds / engine.scene.timestep_s)
    engine.step(command.double().expand(engine.num_envs, -1).contiguous(), steps)
    return seen(engine)


def seen(engine: Engine) -> Physics:
    """In double precision, whatever the engine's precision."""
    physics = engine.physics()
    return Physics(**{name: getattr(physics, name).double() for name in Physics.__dataclass_fields__})


def energy_j(scene: Scene, physics: Physics) -> float:
    """Kinetic and potential energy of world 0, by MuJoCo's sums over the model."""
    model, data = scene.model, mujoco.MjData(scene.model)
    data.qpos[:], data.qvel[:] = physics.qpos[0].numpy(), physics.qvel[0].numpy()
    mujoco.mj_fwdPosition(model, data)
    mujoco.mj_fwdVelocity(model, data)
    mujoco.mj_energyPos(model, data)
    mujoco.mj_energyVel(model, data)
    return float(data.energy.sum())
