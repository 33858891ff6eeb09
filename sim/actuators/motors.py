"""Motor models of a scene's servos, and their state in n worlds: see `sim.actuators.law`.

An engine with motors passes a servo's command through, at every sub-step,

    range of ctrl -> lag -> backlash -> its own stiffness and damping -> torque-speed curve -> joint

All arrays have the order of the model's actuators. Units by the joint: rad or m, Nm or N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int
from sim.actuators.law import lag_share, lagged, motor_line, within_play

SCALES = {
    "no_load_scale": "no_load",
    "lag_scale": "lag_s",
    "backlash_scale": "backlash",
}  # change -> what it scales
_SCALED = {change: (name,) for change, name in SCALES.items()} | {
    "kp_scale": ("gain",),
    "strength_scale": ("low", "high"),
}
Rows = slice | Int[ndarray, " k"]


@dataclass(frozen=True)
class ServoMotors:
    """One number per servo."""

    no_load: tuple[float, ...]  # speed at which the torque is zero; inf: no curve
    stall: tuple[float, ...]  # stall torque of the curve, as a multiple of the servo's limit, 1 or more
    lag_s: tuple[float, ...]  # 0: none
    backlash: tuple[float, ...]  # the whole width of the play; 0: none

    def has(self, change: str) -> bool:
        """True where some servo has the property that this change, a key of `SCALES`, scales."""
        values = getattr(self, SCALES[change])
        return any(0.0 < value < np.inf for value in values)


class MotorDrive(NamedTuple):
    """Commands to the engine for k worlds in a sub-step: torque = gain target + bias (1, q, v), within its
    limits.
    """

    target: Float[ndarray, "k nu"]
    gain: Float[ndarray, "k nu"]
    bias: Float[ndarray, "k nu 3"]


class MotorBank:
    """Servos of n worlds. Their only state is `reached`, the positions of lagging targets."""

    def __init__(self, model: Any, motors: ServoMotors, num: int, step_s: float) -> None:
        self._step_s = step_s
        self._joint_q = model.jnt_qposadr[model.actuator_trnid[:, 0]]
        self._joint_v = model.jnt_dofadr[model.actuator_trnid[:, 0]]
        self._ctrl_range, force_range = ranges(model)
        self._own = {name: np.array(getattr(motors, name), np.float64) for name in SCALES.values()}
        self._own |= {
            "gain": model.actuator_gainprm[:, 0].copy(),
            "bias": model.actuator_biasprm[:, :3].copy(),
        }
        self._own |= {"low": force_range[:, 0], "high": force_range[:, 1], "stall": np.array(motors.stall)}
        self._now = {name: np.tile(value, (num, *[1] * value.ndim)) for name, value in self._own.items()}
        self.curved = motors.has("no_load_scale")
        self._kept = lag_share(self._now["lag_s"], step_s)
        self.reached = np.zeros((num, model.nu))

    def begin(self, rows: Rows, ctrl: Float[ndarray, "k nu"]) -> None:
        """Reset these worlds to the steady state of these commands."""
        self.reached[rows] = self._commanded(ctrl)

    def change(self, rows: Rows, changes: Mapping[str, Float[ndarray, "..."]]) -> None:
        """Change the servos from now on; changes as in `sim.engines.changes`, others are ignored."""
        own, now = self._own, self._now
        for change, names in _SCALED.items():
            for name in names if change in changes else ():
                now[name][rows] = own[name] * changes[change]
        for change, column in (("kp_scale", 1), ("kv_scale", 2)):
            if change in changes:
                now["bias"][rows, :, column] = own["bias"][:, column] * changes[change]
        self._kept[rows] = lag_share(now["lag_s"][rows], self._step_s)

    def advance(
        self,
        rows: Rows,
        ctrl: Float[ndarray, "k nu"],
        qpos: Float[ndarray, "k nq"],
        qvel: Float[ndarray, "k nv"],
    ) -> MotorDrive:
        """Advance these worlds, which are in this state, by a sub-step."""
        now, q, v = self._now, qpos[:, self._joint_q], qvel[:, self._joint_v]
        reached = self.reached[rows] = lagged(self.reached[rows], self._commanded(ctrl), self._kept[rows])
        target, gain, bias = (
            within_play(reached, q, now["backlash"][rows]),
            now["gain"][rows],
            now["bias"][rows],
        )
        if not self.curved:
            return MotorDrive(target, gain, bias)
        demand = gain * target + bias[..., 0] + bias[..., 1] * q + bias[..., 2] * v
        line = motor_line(
            demand, v, now["low"][rows], now["high"][rows], now["no_load"][rows], now["stall"][rows]
        )
        ends = np.stack([line.push, np.zeros_like(v), -line.slope], -1)
        return MotorDrive(
            target, np.where(line.curved, 0.0, gain), np.where(line.curved[..., None], ends, bias)
        )

    def _commanded(self, ctrl: Float[ndarray, "k nu"]) -> Float[ndarray, "k nu"]:
        commanded: Float[ndarray, "k nu"] = np.minimum(
            np.maximum(ctrl, self._ctrl_range[:, 0]), self._ctrl_range[:, 1]
        )
        return commanded


def ranges(model: Any) -> tuple[Float[ndarray, "nu 2"], Float[ndarray, "nu 2"]]:
    """Ranges of ctrl and of torque, infinite where there is no limit."""
    anything = np.array([-np.inf, np.inf])
    ctrl = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, anything)
    force = np.where(model.actuator_forcelimited[:, None], model.actuator_forcerange, anything)
    return ctrl, force


def check_servo(model: Any, servo: int, advice: str) -> None:
    """Raise ConfigError for an actuator that is no position servo at a hinge or slide. advice: the second
    sentence of its message.
    """
    joint, gain = int(model.actuator_trnid[servo, 0]), float(model.actuator_gainprm[servo, 0])
    plain = (
        int(model.actuator_trntype[servo]) == int(mujoco.mjtTrn.mjTRN_JOINT)
        and int(model.jnt_type[joint]) in (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
        and int(model.actuator_dyntype[servo]) == int(mujoco.mjtDyn.mjDYN_NONE)
        and int(model.actuator_gaintype[servo]) == int(mujoco.mjtGain.mjGAIN_FIXED)
        and int(model.actuator_biastype[servo]) == int(mujoco.mjtBias.mjBIAS_AFFINE)
        and model.actuator_biasprm[servo, 0] == 0.0
        and model.actuator_biasprm[servo, 1] == -gain
        and model.actuator_gear[servo, 0] == 1.0
    )
    if not plain:
        raise ConfigError(
            f"The actuator '{model.actuator(servo).name}' is no position servo with gear 1 at a hinge or "
            f"slide. {advice}"
        )
