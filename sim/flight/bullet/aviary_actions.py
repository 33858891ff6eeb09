"""Actions of gym-pybullet-drones: rotor speeds, or goals for a controller."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.bullet.motion import Motion, euler_angles
from sim.engines.quad.craft import Craft
from sim.flight.control.controllers import make_controller

ACTS = {"rpm": 4, "one_d_rpm": 1, "pid": 3, "vel": 4, "one_d_pid": 1}  # name -> numbers per drone
RPM_SHARE = 0.05  # change of rotor speed at an action of 1, as a share of the hover speed
SPEED_LIMIT_M_S = 0.03 * 30.0 / 3.6  # 3 % of the craft's 30 km/h
STEP_M = 0.1  # one_d_pid: height of the goal above the drone at an action of 1
REACH_M = 1.0  # pid: largest distance of the goal
CONTROLLER = "pid"

Goal = Callable[[Float[ndarray, "n a"], Motion], Float[ndarray, "10 n"]]


class ActionConversion:
    """Conversion of one kind of action, a name of ACTS, for n drones, with the controller's memory.

    dt_s: control period.
    """

    def __init__(self, name: str, craft: Craft, num: int, dt_s: float) -> None:
        self.name, self.size, self._hover, self._num = name, ACTS[name], craft.hover_speed, num
        self._goal = _GOALS.get(name)
        self._controller = make_controller(CONTROLLER, craft, dt_s) if self._goal else None
        self.restart()

    def restart(self) -> None:
        """Clear the controller's memory at the start of an episode."""
        self._memory = torch.zeros(0) if self._controller is None else self._controller.blank(self._num)

    def rotors(
        self, action: Float[ndarray, "n a"], motion: Motion, speeds: Float[ndarray, "4 n"]
    ) -> Float[ndarray, "4 n"]:
        """Rotor speeds, 0 ... 1, until the next control step."""
        if self._goal is None or self._controller is None:
            wanted = self._hover * (1.0 + RPM_SHARE * action.T.astype(np.float64))
            return np.clip(np.broadcast_to(wanted, speeds.shape), 0.0, 1.0)
        state = torch.from_numpy(np.concatenate([motion.rows(), speeds])).float()
        reference = torch.from_numpy(self._goal(action.astype(np.float64), motion)).float()
        with torch.no_grad():
            command, self._memory = self._controller(state, reference, self._memory)
        rotors: ndarray = command.double().numpy()
        return rotors


def _reference(
    position_m: ndarray, velocity_m_s: ndarray | float = 0.0, yaw_rad: ndarray | float = 0.0
) -> ndarray:
    reference = np.zeros((10, position_m.shape[1]))
    reference[0:3], reference[3:6], reference[9] = position_m, velocity_m_s, yaw_rad
    return reference


def _waypoint(action: ndarray, motion: Motion) -> ndarray:
    """Go to this place in the world, one metre at a time."""
    way = action.T - motion.position_m
    length = np.linalg.norm(way, axis=0)
    return _reference(motion.position_m + way * np.minimum(1.0, REACH_M / np.maximum(length, 1e-9)))


def _velocity(action: ndarray, motion: Motion) -> ndarray:
    """Velocity in the direction of the first three numbers, with a share of the speed limit, the fourth."""
    way, share = action[:, :3].T, np.abs(action[:, 3])
    length = np.linalg.norm(way, axis=0)
    unit = np.where(length > 0.0, way / np.maximum(length, 1e-9), 0.0)
    yaw = euler_angles(motion.quat_wxyz)[2]
    return _reference(motion.position_m, SPEED_LIMIT_M_S * share * unit, yaw)


def _climb(action: ndarray, motion: Motion) -> ndarray:
    """Goal above or below the current position."""
    above = np.zeros_like(motion.position_m)
    above[2] = STEP_M * action[:, 0]
    return _reference(motion.position_m + above)


_GOALS: dict[str, Goal] = {"pid": _waypoint, "vel": _velocity, "one_d_pid": _climb}
