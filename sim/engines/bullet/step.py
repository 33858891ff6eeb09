"""PyBullet in place of the `quad` dynamics: the same function from state to state.

`sim.flight.flights.Flights` takes it as `step`: task, starts, disturbances, sensors and scoring stay the
same, and PyBullet computes the motion between two control steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.shapes import Float
from sim.engines.bullet.effects import (
    AirEffects,
    check_scene,
    downwash_among,
    downwash_n,
    downwash_world_n,
    equipped,
)
from sim.engines.bullet.motion import Motion
from sim.engines.bullet.world import BulletWorld
from sim.engines.bullet.wrench import Drones, ExternalForces, rotor_heights, rotor_speeds, wrench
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics
from sim.engines.quad.layout import FORCE, POS, QUAT, RATE, ROTOR, TORQUE, VEL, WIND


class BulletStep:
    """step(state, command, params, external) -> state after `physics.dt_s`; see
    `sim.engines.quad.dynamics.make_step`.

    The origin is `scene.height_m` above the floor. A drone whose column differs from the last result is moved
    to that column; the others continue, with their contacts. pure: all drones are moved to their columns, so
    that the result depends on the arguments only, as resuming and seeded episodes need. No gradient. floor_m:
    height of the floor, if not `scene.height_m` below the origin. watch: called after every sub-step.
    """

    def __init__(
        self, craft: Craft, physics: QuadPhysics, num: int, scene: AirEffects, per_arena: int = 1, *,
        pure: bool = False, floor_m: float | None = None, watch: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        check_scene(scene)
        self.pure, self._watch = pure, watch
        self.floor_m = -scene.height_m if floor_m is None else floor_m
        self.craft, self.physics, self.scene, self.per_arena = (
            equipped(craft, scene),
            physics,
            scene,
            per_arena,
        )
        substep_s = physics.dt_s / physics.substeps
        self.world = BulletWorld(self.craft, num, substep_s, floor_m=self.floor_m, per_arena=per_arena)
        self._params: Tensor | None = None
        self._drones = Drones.of(self.craft, np.ones((12, 1)), num)
        self._last = torch.full((17, num), torch.nan)

    @torch.no_grad()
    def __call__(self, state: Tensor, command: Tensor, params: Tensor, external: Tensor) -> Tensor:
        if not torch.isfinite(command).all():
            bad = (~torch.isfinite(command)).any(0).nonzero()[:, 0].tolist()
            raise EnvError(
                f"The commands of drones {bad[:5]} are not finite: PyBullet flies finite rotor speeds only."
            )
        if self._params is None or not torch.equal(params, self._params):
            self._params = params.clone()
            self._drones = Drones.of(self.craft, params.numpy(), state.shape[1])
            self.world.set_masses(self._drones.mass_kg, self._drones.inertia_kg_m2)
        moved = ((state != self._last)[:13].any(0) | self.pure).numpy()
        if moved.any():
            rows = state.double().numpy()
            self.world.place(Motion.of(rows[POS], rows[QUAT], rows[VEL], rows[RATE]), moved.nonzero()[0])
        goal, speeds = command.double().clamp(0.0, 1.0).numpy(), state[ROTOR].double().numpy()
        given = external.double().numpy()
        for _ in range(self.physics.substeps):
            motion = self.world.motion()
            middle, speeds = rotor_speeds(speeds, goal, self._drones)
            self.world.step(*wrench(self._drones, motion, middle, self._outside(motion, given)))
            if self._watch is not None:
                self._watch()
        after = torch.from_numpy(np.concatenate([self.world.motion().rows(), speeds])).to(state.dtype)
        # PyBullet stores matrices, and may return the other quaternion of the same attitude.
        after[QUAT] *= torch.where((after[QUAT] * state[QUAT]).sum(0) < 0.0, -1.0, 1.0)
        self._last = after.clone()  # the caller may write into the result
        return after

    def _outside(self, motion: Motion, given: Float[ndarray, "9 n"]) -> ExternalForces:
        """Disturbances of the task and effects of this scene."""
        force, effects, craft = given[FORCE].copy(), self.scene.effects, self.craft
        if "downwash" in effects:
            if self.per_arena > 1:
                force += downwash_world_n(
                    downwash_among(craft, motion.position_m, self.per_arena), motion.turn
                )
            if self.scene.above_m is not None:
                x, y, z = motion.position_m
                force += downwash_world_n(
                    downwash_n(craft, self.scene.above_m - z, np.hypot(x, y)), motion.turn
                )
        heights = rotor_heights(craft, motion, self.floor_m) if "ground" in effects else None
        air = given[WIND] if self.physics.wind else None
        return ExternalForces(force, given[TORQUE], air, heights)
