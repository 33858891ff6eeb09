"""Cameras of a scene as observations: pictures of every world, taken anew where something has changed."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ArraySpec
from sim.engines.protocol import Engine


class Cameras:
    """`names`: cameras of the scene, joined by "+". Raises UnknownNameError where there is none of a name."""

    def __init__(self, engine: Engine, names: str, side_px: int) -> None:
        self._engine, self._side_px = engine, side_px
        self._names = tuple(name for name in names.split("+") if name)
        for name in self._names:
            engine.scene.camera(name)

    @property
    def specs(self) -> dict[str, ArraySpec]:
        shape = (self._side_px, self._side_px, 3)
        return {f"image.{name}": ArraySpec(shape, "uint8") for name in self._names}

    def take(self, worlds: Iterable[int], before: Obs | None = None) -> Obs:
        """What the cameras see now in these worlds, and in the others what they saw before. Fresh tensors."""
        side, n, found = self._side_px, self._engine.num_envs, {}
        rows = list(worlds)
        for name in self._names:
            key = f"image.{name}"
            found[key] = torch.zeros(n, side, side, 3, dtype=torch.uint8) if before is None else before[key].clone()
            for world in rows:
                found[key][world] = self._engine.render(world, name, side, side)
        return found
