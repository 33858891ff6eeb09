"""Engines by name. The packages of an engine are imported when it is built."""

from __future__ import annotations

from typing import Any

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import lookup
from sim.engines.protocol import Engine
from sim.engines.scene import Scene

# name -> (builder(scene, num_envs, options it takes), extra that installs its packages)
ENGINES = {
    "mujoco": ("sim.engines.mujoco.engine:MujocoEngine", "sim"),
    "pybullet": ("sim.engines.bullet.scenes.processes:make_bullet_engine", "pybullet"),
    "mjwarp": ("sim.engines.mjwarp.engine:WarpEngine", "gpu"),
    "isaacgym": ("sim.engines.isaacgym.engine:IsaacGymEngine", None),
}
# True where servos may have motor models. A user's own engine sets its attribute `has_motors`.
_MOTORS = {"mujoco": True, "pybullet": True, "mjwarp": False, "isaacgym": False}
_TAKES = {"mujoco": ("threads",), "pybullet": ("threads",), "mjwarp": ("device",), "isaacgym": ()}


def make_engine(name: str, scene: Scene, num_envs: int, options: Any) -> Engine:
    """Build an engine.

    Raises UnknownNameError, MissingDependencyError for missing packages, or ConfigError for a scene with
    motors in an engine without motors, for a device or threads that the engine cannot choose, and for Isaac
    Lab.
    """
    if name == "isaaclab" and name not in ENGINES:
        raise ConfigError(
            "Isaac Lab runs its own tasks, not those of robo-rl. Choose one with env=isaaclab/<task>, such "
            "as env=isaaclab/Isaac-Lift-Cube-Franka-v0, or use engine=mjwarp."
        )
    if scene.motors is not None and not _has_motors(name):
        raise ConfigError(
            f"The engine {name} supports only the friction of actuator models: its servos have targets and "
            "limits alone. Use engine=mujoco or engine=pybullet, or leave actuator= out."
        )
    if name in ENGINES and options.threads and not takes_option(name, "threads"):
        choose = " and ".join(each for each, taken in _TAKES.items() if "threads" in taken)
        raise ConfigError(
            f"The engine {name} runs on no threads that can be chosen: threads={options.threads} is for "
            f"{choose}. Leave it out, or choose one of these engines."
        )
    kind = lookup("engine", ENGINES, name)
    if options.device not in (None, "cpu") and not takes_option(name, "device"):
        choose = ", ".join(each for each, taken in _TAKES.items() if "device" in taken)
        raise ConfigError(
            f"The engine {name} cannot run on device={options.device}: only {choose} chooses its device. "
            "Leave device= out, or choose that engine."
        )
    given = {option: getattr(options, option) for option in _TAKES.get(name, ())}
    engine: Engine = kind(
        scene, num_envs, **{option: value for option, value in given.items() if value is not None}
    )
    return engine


def takes_option(name: str | None, option: str) -> bool:
    """True if the engine of this name takes the option; False without an engine."""
    return option in _TAKES.get(name or "", ())


def _has_motors(name: str) -> bool:
    known = _MOTORS.get(name)
    return bool(getattr(lookup("engine", ENGINES, name), "has_motors", False)) if known is None else known
