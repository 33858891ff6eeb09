"""Domain randomisation as data: parameters that differ between episodes, each a function of the episode's
seed.

    factor = low (high / low)^u        of mass, friction, stiffness and damping: log-uniform
    delay  = low ... high, whole steps of control, before an action takes effect or an observation arrives
    noise  = N(0, 1) * standard deviation, by the unit of each part of the observation
    visual = cameras moved and turned, colours and light scaled; see `sim.engines.visual_randomisation`
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.keyed_random import keyed_normal, keyed_uniform
from robo_rl.core.shapes import Float, Int
from sim.asset_files import ASSETS, read_settings
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation, draw_visuals, numbers

PRESETS = ("none", "mild", "wide", "mobile")
_SCALES = {
    "mass": "mass_scale",
    "friction": "friction_scale",
    "kp": "kp_scale",
    "kv": "kv_scale",
    "damping": "damping_scale",
    "strength": "strength_scale",
    "no_load": "no_load_scale",
    "lag": "lag_scale",
    "backlash": "backlash_scale",
}
RANGES = {change: name for name, change in _SCALES.items()}  # change of an engine -> its range here
_PARAMETERS, _DELAY, _NOISE, _LOOK, _OBS_DELAY = 3, 4, 5, 6, 7  # streams of an episode's random numbers
_OF_SERVOS = {"strength": 8, "no_load": 9, "lag": 10, "backlash": 11}  # these have one each
_FACTORS = (*_SCALES, "colour", "light")
_LOOKS = ("camera_m", "camera_rad", "colour", "light")
_DELAYS, _SIZES = ("action_delay", "obs_delay"), ("camera_m", "camera_rad")
MOST_STEPS = 10
UNITS = ("m", "rad", "m/s", "rad/s", "1")  # units of observations of tasks in scenes


@dataclass(frozen=True, slots=True)
class Randomise:
    """Ranges (low, high) of factors; (1, 1) changes nothing."""

    mass: tuple[float, float] = (1.0, 1.0)  # of each body separately
    friction: tuple[float, float] = (1.0, 1.0)  # of all contacts of a world
    kp: tuple[float, float] = (1.0, 1.0)  # of each servo
    kv: tuple[float, float] = (1.0, 1.0)
    damping: tuple[float, float] = (1.0, 1.0)  # of each joint
    strength: tuple[float, float] = (1.0, 1.0)  # of the maximum force or torque of each servo
    no_load: tuple[float, float] = (1.0, 1.0)  # of the speed at which each servo's torque-speed curve ends
    lag: tuple[float, float] = (1.0, 1.0)  # of each servo's lag
    backlash: tuple[float, float] = (1.0, 1.0)  # of each servo's play
    action_delay: tuple[int, int] = (0, 0)  # steps
    obs_delay: tuple[int, int] = (0, 0)  # steps; states and pictures alike
    camera_m: float = 0.0  # maximum shift of a camera along each axis
    camera_rad: float = 0.0  # maximum turn about each axis
    colour: tuple[float, float] = (1.0, 1.0)  # of red, green and blue of every shape separately
    light: tuple[float, float] = (1.0, 1.0)
    noise: Mapping[str, float] = field(
        default_factory=dict
    )  # unit -> standard deviation, for every part in this unit

    def __post_init__(self) -> None:
        for name in _FACTORS:
            low, high = getattr(self, name)
            if not 0.0 < low <= high < math.inf:
                raise ConfigError(
                    f"randomise: {name} is [{low:g}, {high:g}]; expected finite numbers, 0 < low <= high."
                )
        for name in _DELAYS:
            least, most = getattr(self, name)
            if not 0 <= least <= most <= MOST_STEPS:
                raise ConfigError(
                    f"randomise: {name} is {[least, most]}; expected 0 <= low <= high <= {MOST_STEPS} steps."
                )
        for name in _SIZES:
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"randomise: {name} is {getattr(self, name):g}; expected 0 to below 1.")
        if any(not 0.0 <= value < math.inf for value in self.noise.values()):
            raise ConfigError(
                f"randomise: noise is {dict(self.noise)}; expected finite numbers of 0 or more, by unit."
            )

    @property
    def changes_physics(self) -> bool:
        return any(getattr(self, name) != (1.0, 1.0) for name in _SCALES)

    def changes(self, scene: Scene, seeds: Int[Tensor, " k"]) -> dict[str, Tensor]:
        """Argument of `Engine.randomise` for episodes with these seeds."""
        model = scene.model
        counts = {"mass": model.nbody, "friction": 1, "kp": model.nu, "kv": model.nu, "damping": model.nv}
        uniform = keyed_uniform(seeds, 0, sum(counts.values()), _PARAMETERS).T
        drawn = dict(zip(counts, uniform.split(list(counts.values()), dim=1), strict=True))
        made = {}
        for name, change in _SCALES.items():
            low, high = getattr(self, name)
            if (low, high) == (1.0, 1.0):
                continue
            unit = (
                keyed_uniform(seeds, 0, model.nu, _OF_SERVOS[name]).T if name in _OF_SERVOS else drawn[name]
            )
            factor = low * (high / low) ** unit
            made[change] = factor[:, 0] if name == "friction" else factor
        return made

    @property
    def changes_visuals(self) -> bool:
        return any(getattr(self, name) != type(self).__dataclass_fields__[name].default for name in _LOOKS)

    def visuals(self, scene: Scene, seeds: Int[Tensor, " k"]) -> list[VisualRandomisation]:
        """Appearances of episodes with these seeds."""
        uniform = keyed_uniform(seeds, 0, numbers(scene.model), _LOOK).T.cpu()
        how = (self.camera_m, self.camera_rad, self.colour, self.light)
        return [draw_visuals(row, scene.model, *how) for row in uniform]

    def delays(self, seeds: Int[Tensor, " k"]) -> Int[Tensor, " k"]:
        """Delay of actions in steps."""
        return _steps(self.action_delay, seeds, _DELAY)

    def obs_delays(self, seeds: Int[Tensor, " k"]) -> Int[Tensor, " k"]:
        """Delay of observations in steps."""
        return _steps(self.obs_delay, seeds, _OBS_DELAY)

    def spread(self, parts: tuple[tuple[str, int, str], ...]) -> Float[Tensor, " o"] | None:
        """Standard deviation of every number of an observation; None without noise."""
        sizes = [self.noise.get(unit, 0.0) for _, count, unit in parts for _ in range(count)]
        return torch.tensor(sizes) if any(sizes) else None


def _steps(between: tuple[int, int], seeds: Int[Tensor, " k"], stream: int) -> Int[Tensor, " k"]:
    low, high = between
    if low == high:
        return torch.full_like(seeds, low)
    return (low + (high - low + 1) * keyed_uniform(seeds, 0, 1, stream)[0]).long().clamp_max(high)


def seen(
    obs: Float[Tensor, "n o"], spread: Float[Tensor, " o"], seeds: Int[Tensor, " n"], age: Int[Tensor, " n"]
) -> Float[Tensor, "n o"]:
    """Observations with sensor noise at this step of these episodes."""
    return obs + spread * keyed_normal(seeds, age, obs.shape[1], _NOISE).T


def load_randomise(name: str) -> Randomise:
    """A preset, or a YAML file. Raises UnknownNameError or ConfigError that names the key."""
    if name == "none":
        return Randomise()
    path = ASSETS / "randomise" / f"{name}.yaml" if name in PRESETS else Path(name)
    if name not in PRESETS and path.suffix not in (".yaml", ".yml"):
        raise UnknownNameError("randomisation", name, (*PRESETS, "<file>.yaml"))
    if not path.is_file():
        raise ConfigError(
            f"There is no file {path} with ranges to randomise by. Presets: {', '.join(PRESETS)}."
        )
    data = read_settings(path, [each.name for each in fields(Randomise)])
    given: dict[str, Any] = {key: _pair(path, key, data[key]) for key in _FACTORS if key in data}
    given |= {key: _whole(path, key, data[key]) for key in _DELAYS if key in data}
    given |= {key: _size(path, key, data[key]) for key in _SIZES if key in data}
    return Randomise(**given, noise=_noise(path, data.get("noise", {})))


def _noise(path: Path, noise: Any) -> dict[str, float]:
    if not isinstance(noise, dict) or not all(isinstance(value, int | float) for value in noise.values()):
        raise ConfigError(
            f"{path}: noise is {noise!r}; expected unit: number, such as {{m: 0.001, rad: 0.003}}."
        )
    by_unit = {str(unit): float(value) for unit, value in noise.items()}  # YAML reads the unit 1 as a number
    for unit in by_unit:
        if unit not in UNITS:
            raise UnknownNameError(f"unit of noise in {path}", unit, UNITS)
    return by_unit


def _whole(path: Path, key: str, values: Any) -> tuple[int, int]:
    low, high = _pair(path, key, values)
    if low != int(low) or high != int(high):
        raise ConfigError(f"{path}: {key} is [{low:g}, {high:g}]; expected whole steps, such as [0, 1].")
    return int(low), int(high)


def _size(path: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{path}: {key} is {value!r}; expected a number, such as 0.01.")
    return float(value)


def _pair(path: Path, key: str, values: Any) -> tuple[float, float]:
    """Raises ConfigError that names the key."""
    numbers = isinstance(values, list | tuple) and all(isinstance(value, int | float) for value in values)
    if not numbers or len(values) != 2:
        raise ConfigError(f"{path}: {key} is {values!r}; expected [low, high].")
    return float(values[0]), float(values[1])
