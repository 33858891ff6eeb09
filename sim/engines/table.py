"""Engines by name. What one of them needs is imported when it is built."""

from __future__ import annotations

from typing import Any

from robo_rl.core.registry import lookup
from sim.engines.protocol import Engine
from sim.engines.scene import Scene

ENGINES = {  # name -> (builder(scene, num_envs, and what of the options it takes), extra that installs its packages)
    "mujoco": ("sim.engines.mujoco.engine:MujocoEngine", "sim"),
    "pybullet": ("sim.engines.bullet.scenes.processes:make_bullet_engine", "pybullet"),
    "mjwarp": ("sim.engines.mjwarp.engine:WarpEngine", "gpu"),
    "isaacgym": ("sim.engines.isaacgym.engine:IsaacGymEngine", None),
}
_TAKES = {"mujoco": ("threads",), "pybullet": ("threads",), "mjwarp": ("device",), "isaacgym": ()}


def make_engine(name: str, scene: Scene, num_envs: int, options: Any) -> Engine:
    """Raises UnknownNameError, or MissingDependencyError where its packages are not installed."""
    kind = lookup("engine", ENGINES, name)
    given = {option: getattr(options, option) for option in _TAKES.get(name, ())}
    engine: Engine = kind(scene, num_envs, **{option: value for option, value in given.items() if value is not None})
    return engine
