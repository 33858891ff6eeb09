"""Observation of a flight policy from the state of an autopilot: the Crazyflie (ENU, FLU) or PX4 (NED, FRD).

The observation equals that of training (sim/flight/flight.py): position and velocity relative to the goal,
rotation matrix, rates, last actions, integral of the position error, and further entries of the task.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.flight.frames import rotation_of, swap_attitude, swap_body, swap_world
from robo_rl.core.shapes import Float

FRAMES = ("enu_flu", "ned_frd")
_UNIT = 1e-2  # tolerance of a quaternion's length


@dataclass(frozen=True)
class VehicleState:
    """One message of a state estimator. World vectors in the world frame; rates in the body frame."""

    position_m: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"]  # body to world
    velocity_m_s: Float[ndarray, " 3"]
    rates_rad_s: Float[ndarray, " 3"]
    frame: str = "enu_flu"

    def in_enu(self) -> VehicleState:
        """The state in ENU and FLU. Raises ConfigError for another frame, DataError for an invalid state."""
        if self.frame not in FRAMES:
            raise ConfigError(f"frame must be one of {', '.join(FRAMES)}, found '{self.frame}'.")
        for name, size in (("position_m", 3), ("quat_wxyz", 4), ("velocity_m_s", 3), ("rates_rad_s", 3)):
            value = np.asarray(getattr(self, name))
            if value.shape != (size,) or not np.isfinite(value).all():
                raise DataError(f"{name} must be {size} finite numbers, found {value}. Do not fly with it.")
        length = float(np.linalg.norm(self.quat_wxyz))
        if abs(length - 1.0) > _UNIT:
            raise DataError(f"quat_wxyz has length {length:.3f}, expected 1. Its order must be w, x, y, z.")
        if self.frame == "enu_flu":
            return self
        return VehicleState(
            swap_world(self.position_m),
            swap_attitude(self.quat_wxyz),
            swap_world(self.velocity_m_s),
            swap_body(self.rates_rad_s),
        )


@dataclass
class FlightObserver:
    """Memory of past actions and errors for the observation. Each step: `observe`, act, `record_action` of
    the sent action.

    history, integral: as in training (in the bundle's note, `settings`). hover: the hover action, one number
    for all motors or one for each.
    """

    history: int
    integral: bool
    hover: float | tuple[float, float, float, float]
    dt_s: float = 0.01
    integral_limit_m_s: float = 0.1
    _actions: Float[ndarray, " h"] = field(init=False)
    _sum: Float[ndarray, " 3"] = field(init=False)
    _begun: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start a new flight, as after hovering without accumulated error."""
        self._actions = np.tile(np.broadcast_to(self.hover, 4).astype(float), self.history)
        self._sum, self._begun = np.zeros(3), False

    def observe(
        self,
        state: VehicleState,
        goal_m: Float[ndarray, " 3"],
        goal_velocity_m_s: Float[ndarray, " 3"] | None = None,
        extra: Float[ndarray, " b"] | None = None,
    ) -> Float[ndarray, " o"]:
        """Observation (float32). goal: in ENU. extra: last entries of the task's observation, such as the
        path ahead.

        Raises DataError for a state that is not finite or whose quaternion is not of length 1.
        """
        now = state.in_enu()
        offset = now.position_m - goal_m
        if self._begun:
            limit = self.integral_limit_m_s
            self._sum = (self._sum + self.dt_s * offset).clip(-limit, limit)
        self._begun = True
        velocity = now.velocity_m_s if goal_velocity_m_s is None else now.velocity_m_s - goal_velocity_m_s
        parts = [offset, rotation_of(now.quat_wxyz).ravel(), velocity, now.rates_rad_s, self._actions]
        parts += [self._sum] if self.integral else []
        parts += [] if extra is None else [extra]
        return np.concatenate(parts).astype(np.float32)

    def record_action(self, action: Float[ndarray, " 4"]) -> None:
        """Store the action that was sent in this step, in [-1, 1], after all limits."""
        if self.history:
            self._actions = np.concatenate([action, self._actions[:-4]])
