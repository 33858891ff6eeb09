"""PyBullet under a swarm: its drones, floor and cylinders are bodies that push each other, and air falls from
above.

Every world of the swarm is an arena of one PyBullet world. Walls and ceiling are lines that are not to be
crossed, as in `quad`; nothing bounces off them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.step import BulletStep
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics
from sim.flight.swarm.swarm_step import Touched
from sim.tasks.swarm.world import ABSENT_M, SwarmWorld


class BulletSwarm:
    """A `SwarmStep`. `pure`: what follows depends on the state alone, as a training that is resumed wants;
    otherwise contacts last as long as they do, for example of a drone that lies on the floor. Of the scene
    the effects and the rate count: the floor is at z = 0.
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
        self.touched, self._stands = Touched.nobody(num), torch.zeros(0)

    def stand(self, cylinders: Float[Tensor, "2 w m"]) -> None:
        if not torch.equal(cylinders, self._stands):
            self._stands = cylinders.clone()
            axes = cylinders.double().numpy()
            self.engine.world.stand(
                axes, axes[0] < 0.5 * ABSENT_M, self._world.cylinder_m, self._world.room_m[2]
            )

    def __call__(self, state: Tensor, command: Tensor, params: Tensor, external: Tensor) -> Tensor:
        self.touched = Touched.nobody(state.shape[1])
        return self.engine(state, command, params, external)

    def _watch(self) -> None:
        """After every sub-step: a drone that bounces off is gone at the end of the control step."""
        pressed = self.engine.world.pressed()
        for kept, found in zip(self.touched, pressed, strict=True):
            kept |= torch.from_numpy(found)
