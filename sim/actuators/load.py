"""Actuator models as data: a preset of sim/assets/actuators or a YAML file, chosen by `actuator=` in an
environment's name.

A number applies to every servo of a hinge; {servo: number} names servos, slides included, with m for rad.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.actuators.motors import ServoMotors, check_servo
from sim.asset_files import ASSETS, read_settings

PRESETS = ("none", "dc_motor", "lag", "geared", "hobby")
Numbers = Mapping[str, float]  # by servo; "" is for every servo of a hinge
_LEAST = {
    "no_load_rad_s": 0.0,
    "stall": 1.0,
    "lag_s": 0.0,
    "backlash_rad": 0.0,
    "coulomb": 0.0,
    "viscous": 0.0,
}
_FOR_SERVOS = "Actuator models are for such servos: name others, or leave actuator= out."
_MOTOR = {"no_load_rad_s": math.inf, "stall": 1.0, "lag_s": 0.0, "backlash_rad": 0.0}  # defaults


@dataclass(frozen=True)
class Actuator:
    """Properties of servos besides stiffness, damping and torque limit.

    `coulomb` and `viscous` are shares of the torque limit, added to the joint's own friction: torque = limit
    (coulomb sign(v) + viscous v).
    """

    no_load_rad_s: Numbers = field(default_factory=dict)
    stall: Numbers = field(default_factory=dict)  # multiples of the limit, 1 or more
    lag_s: Numbers = field(default_factory=dict)
    backlash_rad: Numbers = field(default_factory=dict)
    coulomb: Numbers = field(default_factory=dict)
    viscous: Numbers = field(default_factory=dict)  # per rad/s

    def add_friction(self, spec: Any) -> None:
        """Write the friction into an MJCF (mujoco.MjSpec) before it is compiled: every engine then has it."""
        servos = {servo.name: servo for servo in spec.actuators}
        for key in ("coulomb", "viscous"):
            for name, value in _spread(key, getattr(self, key), _kinds_of(spec)).items():
                low, high = (float(end) for end in servos[name].forcerange)
                if not low < high:
                    raise ConfigError(f"{_no_limit(name)} {key} is a share of it.")
                joint, torque = spec.joint(servos[name].target), value * max(-low, high)
                if key == "coulomb":
                    joint.frictionloss += torque
                else:
                    joint.damping = _more(joint.damping, torque)

    def motors(self, model: Any) -> ServoMotors | None:
        """Motors of this model's servos; None where only friction is set. Raises ConfigError for an actuator
        that is no servo.
        """
        if not any(getattr(self, key) for key in _MOTOR):
            return None
        kinds = {model.actuator(i).name: _is_hinge(model, i) for i in range(model.nu)}
        columns = []
        for key, default in _MOTOR.items():
            given = _spread(key, getattr(self, key), kinds)
            for name in given:
                check_servo(model, model.actuator(name).id, _FOR_SERVOS)
                if key in ("no_load_rad_s", "stall") and not model.actuator(name).forcelimited[0]:
                    raise ConfigError(f"{_no_limit(name)} {key} is relative to it.")
            columns.append(tuple(given.get(name, default) for name in kinds))
        return ServoMotors(*columns)


def load_actuator(name: str) -> Actuator | None:
    """A preset or a YAML file; None for "none". Raises UnknownNameError or ConfigError that names the key."""
    if name == "none":
        return None
    path = ASSETS / "actuators" / f"{name}.yaml" if name in PRESETS else Path(name)
    if name not in PRESETS and path.suffix not in (".yaml", ".yml"):
        raise UnknownNameError("actuator model", name, (*PRESETS, "<file>.yaml"))
    if not path.is_file():
        raise ConfigError(f"There is no file {path} with an actuator model. Presets: {', '.join(PRESETS)}.")
    data = read_settings(path, [each.name for each in fields(Actuator)])
    return Actuator(**{key: _numbers(path, key, value) for key, value in data.items()})


def _numbers(path: Path, key: str, value: Any) -> dict[str, float]:
    """Numbers by servo. Raises ConfigError that names the key."""
    named = value if isinstance(value, dict) else {"": value}
    for number in named.values():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(f"{path}: {key} is {value!r}; expected a number, or {{servo: number}}.")
        least = _LEAST[key]
        if not least <= number < math.inf or (key == "no_load_rad_s" and number == 0.0):
            above = "above 0" if key == "no_load_rad_s" else f"of {least:g} or more"
            raise ConfigError(f"{path}: {key} is {number:g}; expected a number {above}.")
    return {str(name): float(number) for name, number in named.items()}


def _spread(key: str, numbers: Numbers, is_hinge: Mapping[str, bool]) -> dict[str, float]:
    """Numbers of all servos by name. Raises UnknownNameError for an unknown servo."""
    found = {name: numbers[""] for name, hinge in is_hinge.items() if hinge and "" in numbers}
    for name, value in numbers.items():
        if name and name not in is_hinge:
            raise UnknownNameError(f"servo of {key}", name, tuple(is_hinge))
        if name:
            found[name] = value
    return found


def _is_hinge(model: Any, servo: int) -> bool:
    joint = int(model.actuator_trnid[servo, 0])
    at_joint = int(model.actuator_trntype[servo]) == int(mujoco.mjtTrn.mjTRN_JOINT)
    return at_joint and int(model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_HINGE)


def _kinds_of(spec: Any) -> dict[str, bool]:
    """True or false by servo: it turns a hinge."""
    hinges = {joint.name for joint in spec.joints if int(joint.type) == int(mujoco.mjtJoint.mjJNT_HINGE)}
    at_joint = int(mujoco.mjtTrn.mjTRN_JOINT)
    return {each.name: int(each.trntype) == at_joint and each.target in hinges for each in spec.actuators}


def _more(damping: Any, added: float) -> Any:
    """Damping with a linear term added.

    In newer MuJoCo versions damping holds the coefficients of a polynomial in speed, the linear one first.
    """
    if np.ndim(damping) == 0:
        return damping + added
    return [damping[0] + added, *damping[1:]]


def _no_limit(servo: str) -> str:
    return f"The servo '{servo}' has no limit of torque (forcerange) in its MJCF:"
