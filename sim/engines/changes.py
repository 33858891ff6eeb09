"""Parameters of a world that domain randomisation may change: names, shapes and units."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.actuators.motors import SCALES
from sim.engines.scene import Scene

CHANGES = {  # name -> (columns, meaning); one row per world
    "mass_scale": ("nb", "a factor on each body's mass and inertia"),
    "friction_scale": ("", "a factor on the sliding friction of every contact, (k,)"),
    "kp_scale": ("nu", "a factor on each servo's stiffness"),
    "kv_scale": ("nu", "a factor on each servo's damping"),
    "strength_scale": ("nu", "a factor on the most force or torque of each servo, where it has a limit"),
    "damping_scale": ("nv", "a factor on each joint's own damping"),
    "no_load_scale": ("nu", "a factor on the speed at which each servo's torque-speed curve ends"),
    "lag_scale": ("nu", "a factor on each servo's lag"),
    "backlash_scale": ("nu", "a factor on the play between each servo and its joint"),
}


def check_changes(
    scene: Scene, changes: Mapping[str, Tensor], worlds: int, ranges: Mapping[str, str] | None = None
) -> None:
    """Check names, shapes and values of changes.

    ranges: the name of each change in a randomisation file, if they come from one; the error then names that.
    Raises UnknownNameError for an unknown change, ConfigError for another shape, a factor of 0 or less, or a
    property that no servo of the scene has.
    """
    sizes = {"nb": scene.model.nbody, "nu": scene.model.nu, "nv": scene.model.nv}
    for name, value in changes.items():
        if name not in CHANGES:
            raise UnknownNameError("change", name, tuple(CHANGES))
        columns = CHANGES[name][0]
        shape = (worlds, sizes[columns]) if columns else (worlds,)
        if tuple(value.shape) != shape:
            raise ConfigError(f"The change {name} has shape {tuple(value.shape)}; expected {shape}.")
        if name in SCALES and (scene.motors is None or not scene.motors.has(name)):
            given = f"'{ranges[name]}' of the randomisation" if ranges else f"The change {name}"
            raise ConfigError(
                f"{given} has nothing to scale: no servo here has {SCALES[name].removesuffix('_s')}. Give an "
                "actuator model that has it, such as actuator=geared, or leave it out."
            )
        if not bool((value > 0.0).all()):
            raise ConfigError(f"The change {name} holds {float(value.min()):g}; expected factors above 0.")
