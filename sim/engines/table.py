"""Engines by name. What one of them needs is imported when it is built."""

from __future__ import annotations

from typing import Any

from robo_rl.core.registry import lookup
from sim.engines.protocol import Engine
from sim.engines.scene import Scene

ENGINES = {  # name -> (builder(scene, num_envs, threads), extra that installs its packages)
    "mujoco": ("sim.engines.mujoco.engine:MujocoEngine", "sim"),
    "pybullet": ("sim.engines.bullet.scenes.engine:BulletEngine", "pybullet"),
}


def make_engine(name: str, scene: Scene, num_envs: int, options: Any) -> Engine:
    """Raises UnknownNameError, or MissingDependencyError where its packages are not installed."""
    engine: Engine = lookup("engine", ENGINES, name)(scene, num_envs, options.threads)
    return engine
