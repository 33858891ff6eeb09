"""Torques of servos, joint damping and springs, by MuJoCo's formulas, computed at every step of Bullet.

    torque = clip(gain ctrl + bias0 + bias1 q + bias2 v, low, high) - damping v - stiffness (q - rest)

with ctrl clipped to its range first. Steps are short enough to be stable without MuJoCo's implicit damping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int
from sim.engines.scene import Scene

MAX_STEP_S = 0.0025  # contacts of a few centimetres and grams get soft beyond it
_DECAY = (
    2.0  # a step may take at most this share of a joint's speed away: it overshoots above 1, explodes above 2
)
_FALL = 1.0  # the same of a motor's torque-speed curve: no brake keeps it from overshooting
_MAX_STEPS = 40  # of Bullet in one of the scene


@dataclass(frozen=True)
class ServoGains:
    """One world's servos; every array has a row per scalar joint of `joints`."""

    joints: tuple[int, ...]  # rows of the model's joints that need a torque
    actuators: tuple[int, ...]  # of each of them, -1 for none
    gain: Float[ndarray, " j"]  # [Nm / unit of ctrl] or [N / unit of ctrl]
    offset: Float[ndarray, " j"]  # torque at ctrl = 0 and at Bullet's zero of the joint
    ctrl_low: Float[ndarray, " j"]
    ctrl_high: Float[ndarray, " j"]
    rows: tuple[tuple[float, ...], ...]
    # per joint: stiffness and damping of the servo, its least and most torque; of the joint itself: damping,
    # stiffness, torque of its spring at Bullet's zero, dry friction
    steps: int  # of Bullet in one step of the scene

    def bias(self, ctrl: Float[ndarray, " nu"]) -> list[float]:
        """Part of the servos' torques that depends on the command, by joint."""
        wanted = np.clip(np.append(ctrl, 0.0)[self._columns], self.ctrl_low, self.ctrl_high)
        bias: list[float] = (wanted * self.gain + self.offset).tolist()
        return bias

    @cached_property
    def _columns(self) -> Int[ndarray, " j"]:
        """Columns of ctrl; -1, a zero behind the last, for a joint without an actuator."""
        return np.array(self.actuators, dtype=np.int64)


def torques(states: Any, bias: list[float], rows: Any) -> tuple[list[float], list[float]]:
    """Torques and brakes of one robot, both [Nm] or [N]. `states` as from getJointStates: position and speed
    first.

    A brake is the maximum torque of a motor at speed 0: damping c|v|, which Bullet's solver then cannot
    overshoot.
    """
    forces, brakes = [], []
    for state, b, (k, d, low, high, damping, spring, pull, dry) in zip(states, bias, rows, strict=True):
        q, v = state[0], state[1]
        drive = b - k * q
        servo = drive - d * v
        brake = dry + damping * abs(v)
        if servo > high:
            drive = high
        elif servo < low:
            drive = low
        else:  # also where a number is no number: then the world shows it
            brake += d * abs(v)
        forces.append(drive + pull - spring * q)
        brakes.append(brake)
    return forces, brakes


def gains(
    scene: Scene,
    kp: Float[ndarray, " nu"],
    kv: Float[ndarray, " nu"],
    damping: Float[ndarray, " nv"],
    strength: Float[ndarray, " nu"],
    no_load: Float[ndarray, " nu"],
) -> ServoGains:
    """Gains with these factors on the model's values. Raises ConfigError for a servo that needs too short a
    step.
    """
    model = scene.model
    actuator = {int(model.actuator_trnid[i, 0]): i for i in range(model.nu)}
    joints, rows, scales, steps = [], [], [], math.ceil(scene.timestep_s / MAX_STEP_S - 1e-9)
    for joint in range(model.njnt):
        at, dof, i = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint]), actuator.get(joint, -1)
        zero, spring = float(model.qpos0[at]), float(model.jnt_stiffness[joint])
        own = float(model.dof_damping[dof] * damping[dof])
        if i < 0 and spring == 0.0 and own == 0.0:  # what is left is dry friction, which `build` has set
            continue
        gain, offset, k, d = _affine(model, i, zero, kp, kv) if i >= 0 else (0.0, 0.0, 0.0, 0.0)
        ctrl, force = _ranges(model, i) if i >= 0 else ((0.0, 0.0), (0.0, 0.0))
        pull = spring * (float(model.qpos_spring[at]) - zero)
        joints.append(joint)
        strong = float(strength[i]) if i >= 0 else 1.0
        rows.append(
            (
                k,
                d,
                strong * force[0],
                strong * force[1],
                own,
                spring,
                pull,
                float(model.dof_frictionloss[dof]),
            )
        )
        scales.append((gain, offset, *ctrl))
        slope = _slope(scene, i, strong / float(no_load[i])) if i >= 0 else 0.0
        decay = max((d + own) / _DECAY, (slope + own) / _FALL)
        needed = math.ceil(decay * float(model.dof_invweight0[dof]) * scene.timestep_s - 1e-9)
        if needed > _MAX_STEPS:
            raise ConfigError(
                f"Joint '{scene.joints[joint]}' is damped so strongly for its inertia, by its servo, by "
                f"itself or by a motor that is so slow for its torque, that PyBullet needs {needed} "
                f"steps in {scene.timestep_s:g} s; expected are at most {_MAX_STEPS}. Give it armature."
            )
        steps = max(steps, needed)
    table = np.array(scales).reshape(-1, 4)
    return ServoGains(
        joints=tuple(joints),
        actuators=tuple(actuator.get(joint, -1) for joint in joints),
        gain=table[:, 0],
        offset=table[:, 1],
        ctrl_low=table[:, 2],
        ctrl_high=table[:, 3],
        rows=tuple(rows),
        steps=steps,
    )


def _slope(scene: Scene, servo: int, scale: float) -> float:
    """Slope of the motor's torque-speed curve [Nm s/rad] or [N s/m]; 0 without one."""
    if scene.motors is None or math.isinf(scene.motors.no_load[servo]):
        return 0.0
    most = float(np.abs(scene.model.actuator_forcerange[servo]).max())
    return scale * scene.motors.stall[servo] * most / scene.motors.no_load[servo]


def _affine(model: Any, i: int, zero: float, kp: ndarray, kv: ndarray) -> tuple[float, float, float, float]:
    """(gain, offset, stiffness, damping) at the joint, behind the gear, from the joint's place in Bullet."""
    gear = float(model.actuator_gear[i, 0])
    bias0, bias1, bias2 = model.actuator_biasprm[i, :3].tolist()
    k, d = -gear * gear * bias1 * float(kp[i]), -gear * gear * bias2 * float(kv[i])
    return gear * float(model.actuator_gainprm[i, 0] * kp[i]), gear * bias0 - k * zero, k, d


def _ranges(model: Any, i: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """(of ctrl, of the torque at the joint)"""
    anything = (-math.inf, math.inf)
    low, high = model.actuator_ctrlrange[i].tolist() if model.actuator_ctrllimited[i] else anything
    gear = float(model.actuator_gear[i, 0])
    ends = model.actuator_forcerange[i].tolist() if model.actuator_forcelimited[i] else anything
    least, most = sorted(gear * end for end in ends)
    return (low, high), (least, most)
