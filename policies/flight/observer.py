"""What a flight policy sees, put together from what an autopilot tells: the Crazyflie (ENU, FLU) or PX4 (NED,
FRD).

The observation is that of training (sim/flight/flight.py): position and velocity from the goal, rotation
matrix, rates, the last actions, the integral of the position error, and whatever the task shows behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.flight.frames import rotation_of, swap_attitude, swap_body, swap_world
from robo_rl.core.shapes import Float

FRAMES = ("enu_flu", "ned_frd")
_UNIT = 1e-2  # how far from 1 the length of a quaternion may be


@dataclass(frozen=True)
class VehicleState:
    """One message of a state estimator. World vectors in the world frame; rates in the body frame."""

    position_m: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"]  # body to world
    velocity_m_s: Float[ndarray, " 3"]
    rates_rad_s: Float[ndarray, " 3"]
    frame: str = "enu_flu"

    def in_enu(self) -> VehicleState:
        """The same in ENU and FLU. Raises ConfigError for another frame, DataError for what is no state."""
        if self.frame not in FRAMES:
            raise ConfigError(f"frame must be one of {', '.join(FRAMES)}, found '{self.frame}'.")
        for name, size in (("position_m", 3), ("quat_wxyz", 4), ("velocity_m_s", 3), ("rates_rad_s", 3)):
            value = np.asarray(getattr(self, name))
            if value.shape != (size,) or not np.isfinite(value).all():
                raise DataError(f"{name} must be {size} finite numbers, found {value}. Do not fly on it.")
        length = float(np.linalg.norm(self.quat_wxyz))
        if abs(length - 1.0) > _UNIT:
            raise DataError(f"quat_wxyz has length {length:.3f}, expected 1. Is its order w, x, y, z?")
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
    """Remembers what the policy is shown of the past. Call `see`, act, then `acted` with what was really
    sent.

    history, integral: as in training (they stand in the bundle's note, `settings`). hover: the action that
    hovers, one number for all four or one for each.
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
        """A new flight: as if it had hovered, without accumulated error."""
        self._actions = np.tile(np.broadcast_to(self.hover, 4).astype(float), self.history)
        self._sum, self._begun = np.zeros(3), False

    def see(
        self,
        state: VehicleState,
        goal_m: Float[ndarray, " 3"],
        goal_velocity_m_s: Float[ndarray, " 3"] | None = None,
        behind: Float[ndarray, " b"] | None = None,
    ) -> Float[ndarray, " o"]:
        """The observation (float32). goal: in ENU. behind: what the task shows last, such as the path ahead.

        Raises DataError for a state that is not finite or whose quaternion is none.
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
        parts += [] if behind is None else [behind]
        return np.concatenate(parts).astype(np.float32)

    def acted(self, action: Float[ndarray, " 4"]) -> None:
        """Remember the action that was sent in this step, in [-1, 1], after all limits."""
        if self.history:
            self._actions = np.concatenate([action, self._actions[:-4]])
