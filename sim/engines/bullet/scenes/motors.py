"""Motor models of one PyBullet world: `sim.actuators` as numbers for `servo.torques`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.actuators.motors import MotorBank
from sim.engines.bullet.scenes.recipe import Recipe
from sim.engines.scene import Scene


class BulletMotors:
    """Motors, made anew with their world. Gears are 1, so that servo torques and positions are
    the joint's.
    """

    def __init__(self, scene: Scene, recipe: Recipe, step_s: float, ctrl: Float[ndarray, " nu"]) -> None:
        assert scene.motors is not None
        model, self._gains = scene.model, recipe.gains
        self._bank = MotorBank(model, scene.motors, 1, step_s)
        changes = {
            name: np.asarray(value)[None] for name, value in recipe.changes.items() if np.ndim(value) == 1
        }
        self._bank.change(slice(None), changes)
        self._bank.begin(slice(None), ctrl[None])
        joints = np.array(recipe.gains.joints)
        self._at, self._dof = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        self._zero = model.qpos0[self._at]
        self._qpos, self._qvel = np.zeros((1, model.nq)), np.zeros((1, model.nv))

    def advance(
        self, ctrl: Float[ndarray, " nu"], states: Sequence[Any], rows: Sequence[Sequence[int]]
    ) -> tuple[list[float], list[tuple[float, ...]]]:
        """Commanded part of the torques, and the servo parameters, in this step of Bullet, by rows of
        `ServoGains`.

        states: of each robot, as from getJointStates; rows: their rows in `ServoGains`.
        """
        for seen, mine in zip(states, rows, strict=True):
            moves = np.array([state[:2] for state in seen])
            self._qpos[0, self._at[mine]] = moves[:, 0] + self._zero[mine]
            self._qvel[0, self._dof[mine]] = moves[:, 1]
        drive = self._bank.advance(slice(None), ctrl[None], self._qpos, self._qvel)
        pushed, numbers = self._gains.bias(drive.target[0]), list(self._gains.rows)
        for row, servo in enumerate(self._gains.actuators):
            if servo >= 0 and drive.gain[0, servo] == 0.0:  # at the end of what its motor can
                push, _, fall = drive.bias[0, servo].tolist()
                pushed[row], numbers[row] = push, (0.0, -fall, *numbers[row][2:])
        return pushed, numbers
