"""What a manipulation environment tells of n worlds: its numbers with sensor noise, its cameras, and all that
late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ArraySpec
from sim.engines.protocol import Engine, Physics
from sim.engines.visual_randomisation import VisualRandomisation
from sim.scenes.cameras import Cameras
from sim.scenes.observation_delay import ObservationDelay
from sim.scenes.randomise import Randomise, seen

Parts = tuple[tuple[str, int, str], ...]
KNOWN = ("all", "robot")
OWN = (  # parts that a robot's own sensors tell, and where it was told to go
    "tool",
    "heading",
    "opening",
    "joints",
    "joint speeds",
    "tool axis",
    "touch",
    "touching",
    "lidar",
    "forward",
    "turn",
    "stick",
    "goal from base",
    "goal from tool",
)


class Senses:
    """State and pictures, by an episode's seed and age. Observations are (n, ...), kept by whoever asks.

    parts: name, numbers and unit of what the task observes. known: "all" of it, or "robot", what a robot's
    own encoders tell; the rest has to be seen by cameras. Raises UnknownNameError.
    """

    def __init__(
        self,
        engine: Engine,
        cameras: Cameras,
        randomise: Randomise,
        parts: tuple[tuple[str, int, str], ...],
        known: str,
    ) -> None:
        if known not in KNOWN:
            raise UnknownNameError("state", known, KNOWN)
        every = [name for name, count, _ in parts for _ in range(count)]
        kept = [i for i, name in enumerate(every) if known == "all" or name in OWN]
        self._kept = None if len(kept) == len(every) else torch.tensor(kept, dtype=torch.long)
        parts = tuple(part for part in parts if known == "all" or part[0] in OWN)
        self._engine, self._cameras, self._randomise = engine, cameras, randomise
        spread = randomise.spread(parts)
        self._spread = None if spread is None else spread.to(engine.device)
        self._late = ObservationDelay(randomise.obs_delay[1])
        self._shown: tuple[int, VisualRandomisation] | None = (
            None  # the last seed that was asked for, and its look
        )
        unit = ", ".join(f"{part} {unit}" for part, _, unit in parts)
        state = ArraySpec((sum(count for _, count, _ in parts),), unit=unit)
        self.specs = {"state": state, **cameras.specs}

    def after_step(
        self, state: Float[Tensor, "n o"], good: Bool[Tensor, " n"], physics: Physics,
        seeds: Int[Tensor, " n"], age: Int[Tensor, " n"], before: Obs,
    ) -> Obs:  # fmt: skip
        """What all worlds are told once they have moved; before: what they were told last, and where a state
        is no good, still are. Fresh tensors.
        """
        pictures = self._cameras.take(physics, range(len(state)))
        told = torch.where(good[:, None], self._noisy(state, seeds, age), before["state"])
        return self._late.hear({"state": told, **pictures})

    def at_start(
        self, worlds: Int[Tensor, " k"], state: Float[Tensor, "k o"], physics: Physics, seeds: Int[Tensor, " k"],
        before: Obs | None,
    ) -> Obs:  # fmt: skip
        """What the worlds that have just begun are told, and the others were told before; None: all have
        begun.
        """
        self._look(worlds, seeds)
        begun = self._noisy(state, seeds, torch.zeros_like(seeds))
        if before is not None:
            begun = before["state"].index_copy(0, worlds, begun)
        told = {"state": begun, **self._cameras.take(physics, worlds.tolist(), before)}
        self._late.begin(worlds, told, self._randomise.obs_delays(seeds))
        return told

    def look_of(self, seed: int) -> VisualRandomisation | None:
        """How the episode of this seed looks; None: as the model has it."""
        if not self._randomise.changes_looks:
            return None
        if self._shown is None or self._shown[0] != seed:
            self._shown = seed, self._randomise.looks(self._engine.scene, torch.tensor([seed]))[0]
        return self._shown[1]

    def save(self) -> dict[str, Tensor]:
        return self._late.save()

    def load(
        self,
        saved: Mapping[str, Any],
        state: Float[Tensor, "n o"],
        physics: Physics,
        seeds: Int[Tensor, " n"],
    ) -> Obs:
        """What was told when this was saved. state: that of then, as it was told."""
        every = torch.arange(len(state), device=seeds.device)
        self._look(every, seeds)
        if self._randomise.obs_delay[1]:
            self._late.load(saved, seeds.device)
            return self._late.told()
        return {"state": state, **self._cameras.take(physics, range(len(state)))}

    def _look(self, worlds: Int[Tensor, " k"], seeds: Int[Tensor, " k"]) -> None:
        if self._randomise.changes_looks and self._cameras.specs:
            self._cameras.begin(worlds.tolist(), self._randomise.looks(self._engine.scene, seeds))

    def _noisy(
        self, state: Float[Tensor, "n o"], seeds: Int[Tensor, " n"], age: Int[Tensor, " n"]
    ) -> Float[Tensor, "n s"]:
        kept = state if self._kept is None else state[:, self._kept]
        return kept if self._spread is None else seen(kept, self._spread, seeds, age)


def handed_out(told: Obs) -> Obs:
    """For the caller to keep, in the host's memory."""
    return {key: value.clone().cpu() for key, value in told.items()}
