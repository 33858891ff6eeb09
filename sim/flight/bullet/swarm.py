"""PyBullet as the engine of a swarm: drones, floor and cylinders collide, and drones have downwash.

Every world of the swarm is an arena of one PyBullet world. Walls and ceiling are only limits, as in `quad`,
without contact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.step import BulletStep
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics
from sim.flight.swarm.swarm_step import Touched
from sim.tasks.swarm.world import ABSENT_M, SwarmWorld


class BulletSwarm:
    """A `SwarmStep` in PyBullet; the floor is at z = 0, the scene gives effects and rate.

    pure: the next state depends on the state alone, as resumed training needs; otherwise contacts persist
    between steps, for example of a drone that lies on the floor.
    """

    def __init__(
        self,
        craft: Craft,
        world: SwarmWorld,
        worlds: int,
        scene: AirEffects | None = None,
        *,
        pure: bool = False,
    ) -> None:
        self._world, self._worlds = world, worlds
        scene = scene or AirEffects()
        self.physics = QuadPhysics(dt_s=world.dt_s, integrator="euler", substeps=scene.substeps(world.dt_s))
        num = worlds * world.drones
        self.engine = BulletStep(
            craft, self.physics, num, scene, per_arena=world.drones, pure=pure, floor_m=0.0, watch=self._watch
        )
        self.craft = self.engine.craft
        self.touched, self._cylinders = Touched.none(num), torch.zeros(0)

    def place_cylinders(self, cylinders: Float[Tensor, "2 w m"]) -> None:
        if not torch.equal(cylinders, self._cylinders):
            self._cylinders = cylinders.clone()
            axes = cylinders.double().numpy()
            self.engine.world.place_cylinders(
                axes, axes[0] < 0.5 * ABSENT_M, self._world.cylinder_m, self._world.room_m[2]
            )

    def __call__(self, state: Tensor, command: Tensor, params: Tensor, external: Tensor) -> Tensor:
        self.touched = Touched.none(state.shape[1])
        return self.engine(state, command, params, external)

    def _watch(self) -> None:
        """Record contacts after every substep: a drone that bounces has none at the end of the step."""
        pressed = self.engine.world.pressed()
        for kept, found in zip(self.touched, pressed, strict=True):
            kept |= torch.from_numpy(found)
