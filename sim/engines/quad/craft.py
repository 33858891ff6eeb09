"""Parameters of a quadcopter: mass, inertia, rotors and drag. One YAML file per craft, with its source.

Simulators disagree on the parameters of a Crazyflie, so every file names its source. Frames:
world ENU (z up), body FLU; rotors front right, back right, back left, front left.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.text.nearest import nearest
from sim.engines.own_file import check_numbers, is_own, path_of, restore_hint

GRAVITY_M_S2 = 9.81
FOLDER = Path(__file__).parent / "crafts"
Vec3 = tuple[float, float, float]
Four = tuple[float, float, float, float]
_LISTS = (
    "inertia_kg_m2",
    "rotors_m",
    "yaw_sign",
    "thrust_n",
    "linear_drag_n_s_m",
    "rotor_drag_n_s2_m",
    "downwash",
)


@dataclass(frozen=True, slots=True)
class Craft:
    """Parameters of one craft. A rotor's speed s is the fraction of its maximum, 0 ... 1."""

    name: str
    source: str
    mass_kg: float
    inertia_kg_m2: Vec3
    rotors_m: tuple[tuple[float, float], ...]  # (x, y) of each rotor in the body frame
    yaw_sign: Four  # +1 or -1: sign of the torque that each rotor's drag puts on the body
    max_rpm: float
    thrust_n: Vec3  # (c0, c1, c2): thrust of one rotor is c0 + c1 s + c2 s^2
    torque_per_thrust_m: float
    rise_s: float  # time constant of a rotor that speeds up; 0: at once
    fall_s: float  # ... that slows down
    linear_drag_n_s_m: tuple[float, float] = (0.0, 0.0)  # body xy, body z
    rotor_drag_n_s2_m: tuple[float, float] = (0.0, 0.0)  # the same, per rad/s of summed rotor speed
    quadratic_drag_n_s2_m2: float = 0.0
    rotor_inertia_kg_m2: float = 0.0
    prop_radius_m: float = 0.0
    ground_effect: float = 0.0  # coefficient of (radius / 4 height)^2
    downwash: Vec3 = (0.0, 0.0, 0.0)  # gym-pybullet-drones' coefficients

    @property
    def max_thrust_n(self) -> float:
        """Full thrust of all four rotors."""
        return 4.0 * sum(self.thrust_n)

    @property
    def thrust_to_weight(self) -> float:
        return self.max_thrust_n / (self.mass_kg * GRAVITY_M_S2)

    @property
    def hover_speed(self) -> float:
        """Rotor speed, 0 ... 1, at which thrust equals weight."""
        return self.speed_for(self.mass_kg * GRAVITY_M_S2 / 4.0)

    def speed_for(self, thrust_n: float) -> float:
        """Rotor speed that gives this thrust: the inverse of the thrust curve, clipped to 0 ... 1."""
        c0, c1, c2 = self.thrust_n
        if c2 == 0.0:
            return min(1.0, max(0.0, (thrust_n - c0) / c1))
        root = c1 * c1 - 4.0 * c2 * (c0 - thrust_n)
        return min(1.0, max(0.0, (-c1 + math.sqrt(max(root, 0.0))) / (2.0 * c2)))

    @property
    def numbers(self) -> dict[str, Any]:
        """All parameters but those with their default value."""
        return {
            field.name: value
            for field in fields(self)
            if field.name not in ("name", "source") and (value := getattr(self, field.name)) != field.default
        }

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def list_crafts() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_craft(name: str, **changes: Any) -> Craft:
    """Craft by name, or from your own YAML file, which may be named with a checksum.

    Raises UnknownNameError, and ConfigError for bad values and for others than the checksum is of.
    """
    own = is_own(name)
    path = Path(path_of(name)) if own else FOLDER / f"{name}.yaml"
    if own and not path.is_file():
        raise ConfigError(
            f"Craft file {path} does not exist. Check the path, or choose: {', '.join(list_crafts())}."
            + restore_hint(name)
        )
    if not path.exists():
        raise UnknownNameError("craft", name, list_crafts())
    try:
        data = yaml.safe_load(path.read_text())
        if not isinstance(data, dict):
            raise TypeError(f"it holds {type(data).__name__}, expected 'name: value' lines")
        _check_keys(data)
        craft = Craft(name=path.stem, **{key: _plain(key, value) for key, value in data.items()})
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} does not describe a craft: {error}. Compare with {FOLDER / 'cf21.yaml'}."
        ) from error
    check_numbers(name, craft.numbers)
    return check_craft(replace(craft, **changes))


def check_craft(craft: Craft) -> Craft:
    """The craft unchanged. Raises ConfigError for impossible parameters, with the value and its bound."""
    positive = {
        "mass_kg": craft.mass_kg,
        "torque_per_thrust_m": craft.torque_per_thrust_m,
        "max_rpm": craft.max_rpm,
    }
    positive |= {f"inertia_kg_m2[{i}]": value for i, value in enumerate(craft.inertia_kg_m2)}
    for name, value in positive.items():
        if not (math.isfinite(value) and value > 0.0):
            raise ConfigError(
                f"{name} = {value:g} of craft '{craft.name}' is impossible: it must be above 0."
            )
    for name, value in {"rise_s": craft.rise_s, "fall_s": craft.fall_s}.items():
        if not 0.0 <= value <= 2.0:
            raise ConfigError(
                f"{name} = {value:g} of craft '{craft.name}' is impossible: it must be in 0 ... 2 s."
            )
    _check_lengths(craft)
    _check_rotors(craft)
    parts = ("linear_drag_n_s_m", "rotor_drag_n_s2_m")
    rest = {f"{name}[{i}]": value for name in parts for i, value in enumerate(getattr(craft, name))}
    rest |= {
        name: getattr(craft, name)
        for name in ("quadratic_drag_n_s2_m2", "rotor_inertia_kg_m2", "prop_radius_m")
    }
    for name, value in rest.items():
        if value < 0.0:
            raise ConfigError(
                f"{name} = {value:g} of craft '{craft.name}' is impossible: it must not be below 0."
            )
    x, y, z = craft.inertia_kg_m2
    if max(x, y, z) > 1.001 * (x + y + z - max(x, y, z)):
        raise ConfigError(
            f"inertia_kg_m2 = {craft.inertia_kg_m2} of craft '{craft.name}' is impossible: no body has one "
            "moment of inertia above the sum of the other two."
        )
    if craft.thrust_n[1] + 2.0 * craft.thrust_n[2] <= 0.0:
        raise ConfigError(
            f"thrust_n = {craft.thrust_n} of craft '{craft.name}' is impossible: thrust c0 + c1 s + c2 s^2 "
            "must rise towards full speed, s = 1."
        )
    if craft.thrust_to_weight <= 1.0:
        raise ConfigError(
            f"Craft '{craft.name}' cannot take off: full thrust is {craft.thrust_to_weight:.2f} times its "
            "weight, and must be above 1. Check mass_kg and thrust_n."
        )
    return craft


def allocation(craft: Craft) -> NDArray[np.float64]:
    """(4, 4): rotor thrusts [N] -> collective thrust [N], roll, pitch and yaw torque [N m]."""
    x, y = np.array(craft.rotors_m).T
    return np.stack([np.ones(4), y, -x, craft.torque_per_thrust_m * np.array(craft.yaw_sign)])


def inverse_allocation(craft: Craft) -> list[list[float]]:
    """Inverse of `allocation`, one list of four numbers per rotor.

    Raises ConfigError for rotors that cannot give thrust and torques independently.
    """
    forward = allocation(craft)
    scale = np.abs(forward).max(axis=1, keepdims=True)
    if np.linalg.matrix_rank(forward / np.where(scale > 0.0, scale, 1.0)) < 4:
        raise ConfigError(
            f"The rotors of craft '{craft.name}' cannot give three torques: check rotors_m and yaw_sign."
        )
    inverse = np.linalg.inv(forward)
    if (inverse[:, 0] <= 0.0).any():
        raise ConfigError(f"No rotors of craft '{craft.name}' surround its centre of mass: check rotors_m.")
    numbers: list[list[float]] = inverse.tolist()
    return numbers


def _check_rotors(craft: Craft) -> None:
    if any(sign not in (-1.0, 1.0) for sign in craft.yaw_sign):
        raise ConfigError(
            f"yaw_sign = {craft.yaw_sign} of craft '{craft.name}' is impossible: each must be +1 or -1. The "
            "size of the torque is torque_per_thrust_m."
        )
    inverse_allocation(craft)


def _check_lengths(craft: Craft) -> None:
    if len(craft.rotors_m) != 4 or len(craft.yaw_sign) != 4:
        raise ConfigError(f"Craft '{craft.name}' has {len(craft.rotors_m)} rotors; the engine flies four.")
    lengths = {f"rotors_m[{i}]": (place, 2) for i, place in enumerate(craft.rotors_m)}
    lengths |= {name: (getattr(craft, name), 3) for name in ("inertia_kg_m2", "thrust_n", "downwash")}
    lengths |= {name: (getattr(craft, name), 2) for name in ("linear_drag_n_s_m", "rotor_drag_n_s2_m")}
    for name, (found, expected) in lengths.items():
        if len(found) != expected:
            raise ConfigError(
                f"{name} of craft '{craft.name}' has {len(found)} values, expected {expected}: {found}."
            )


def _check_keys(data: dict[Any, Any]) -> None:
    """Raises ValueError for an unknown key and for missing ones."""
    of_file = {field.name: field.default is MISSING for field in fields(Craft) if field.name != "name"}
    for key in data:
        if key not in of_file:
            close = nearest(str(key), list(of_file), 1)
            raise ValueError(f"it has no '{key}'" + (f"; did you mean '{close[0]}'?" if close else ""))
    if missing := [key for key, needed in of_file.items() if needed and key not in data]:
        raise ValueError(f"it lacks {', '.join(missing)}")


def _plain(key: str, value: Any) -> Any:
    """YAML lists to tuples, numbers to float ('1e-5' without a point is text to YAML)."""
    if key == "source":
        return value
    if (key in _LISTS) != isinstance(value, list):
        raise TypeError(f"{key} = {value!r}, expected {'a list' if key in _LISTS else 'a number'}")
    try:
        if key == "rotors_m":
            return tuple(tuple(map(_number, place)) for place in value)
        return tuple(map(_number, value)) if key in _LISTS else _number(value)
    except (TypeError, ValueError):
        wanted = "a list of [x, y]" if key == "rotors_m" else "finite numbers"
        raise TypeError(f"{key} = {value!r}, expected {wanted}") from None


def _number(value: Any) -> float:
    if not math.isfinite(number := float(value)):
        raise ValueError(value)
    return number
