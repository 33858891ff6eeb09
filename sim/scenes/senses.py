"""Observations of a task in a scene: state with sensor noise, cameras, and delay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.core.spec import ArraySpec
from sim.bodies.scene_view import SceneView
from sim.engines.protocol import Engine
from sim.engines.visual_randomisation import VisualRandomisation
from sim.scenes.cameras import Cameras
from sim.scenes.instructions import Instructions
from sim.scenes.observation_delay import ObservationDelay
from sim.scenes.randomise import Randomise, seen

Parts = tuple[tuple[str, int, str], ...]
KNOWN = ("all", "robot", "body")
GOALS = ("goal from base", "goal from tool")  # commands: what the robot is told
OWN = (  # parts measured by a robot's own sensors, and its commands
    "tool",
    "heading",
    "opening",
    "joints",
    "finger joints",
    "joint speeds",
    "tool axis",
    "touch",
    "touching",
    "lidar",
    "forward",
    "turn",
    "stick",
    *GOALS,
)


class Senses:
    """State and pictures, by an episode's seed and age. Observations are (n, ...); the caller keeps them.

    parts: name, numbers and unit of the task's observation. known: "all" of it; "robot", the readings of the
    robot's own encoders and its commands; "body", the readings alone. Cameras must show the rest. Raises
    UnknownNameError.
    """

    def __init__(
        self,
        engine: Engine,
        cameras: Cameras,
        randomise: Randomise,
        parts: tuple[tuple[str, int, str], ...],
        known: str,
        instructions: Instructions,
    ) -> None:
        if known not in KNOWN:
            raise UnknownNameError("state", known, KNOWN)
        every = [name for name, count, _ in parts for _ in range(count)]
        shown = {"all": set(every), "robot": set(OWN), "body": set(OWN) - set(GOALS)}[known]
        kept = [i for i, name in enumerate(every) if name in shown]
        chosen = torch.tensor(kept, dtype=torch.long, device=engine.device)
        self._kept = None if len(kept) == len(every) else chosen
        parts = tuple(part for part in parts if part[0] in shown)
        self._engine, self._cameras, self._randomise = engine, cameras, randomise
        spread = randomise.spread(parts)
        self._spread = None if spread is None else spread.to(engine.device)
        self._delay = ObservationDelay(randomise.obs_delay[1])
        self._shown: tuple[int, VisualRandomisation] | None = None  # last seed and its appearance
        unit = ", ".join(f"{part} {unit}" for part, _, unit in parts)
        state = ArraySpec((sum(count for _, count, _ in parts),), unit=unit)
        self._instructions = instructions
        self.specs = {"state": state, **cameras.specs, **instructions.specs}

    def after_step(
        self, state: Float[Tensor, "n o"], good: Bool[Tensor, " n"], view: SceneView,
        seeds: Int[Tensor, " n"], age: Int[Tensor, " n"], before: Obs, drawn: Sequence[int],
    ) -> Obs:  # fmt: skip
        """Observations of all worlds after a step.

        before: the last observations, which are kept where a state is not sane. drawn: worlds with new
        pictures; those of the others are `before`, and all are new with delayed observations. Fresh tensors.
        """
        late = bool(self._randomise.obs_delay[1])
        pictures = self._cameras.take(view.physics, range(len(state)) if late else drawn, before)
        noisy = torch.where(good[:, None], self._noisy(state, seeds, age), before["state"])
        return self._delay.push({"state": noisy, **pictures, **self._instructions.of(view, seeds)})

    def at_start(
        self,
        worlds: Int[Tensor, " k"],
        state: Float[Tensor, "k o"],
        view: SceneView,
        every_seed: Int[Tensor, " n"],
        before: Obs | None,
    ) -> Obs:
        """First observations of worlds that start, and `before` of the others; None: all worlds start.

        every_seed: those of all episodes that are now running.
        """
        seeds = every_seed[worlds]
        self._set_visuals(worlds, seeds)
        begun = {"state": self._noisy(state, seeds, torch.zeros_like(seeds))}
        named = self._instructions.of(view, every_seed)  # places in pictures are in the host's memory
        begun |= {key: value[worlds.to(value.device)] for key, value in named.items()}
        if before is not None:
            begun = {
                key: before[key].index_copy(0, worlds.to(value.device), value) for key, value in begun.items()
            }
        first = begun | self._cameras.take(view.physics, worlds.tolist(), before)
        self._delay.begin(worlds, first, self._randomise.obs_delays(seeds))
        return first

    @property
    def on_device(self) -> bool:
        """True without pictures: then only the state is observed, on the device."""
        return not self._cameras.specs

    def restarted(
        self,
        mask: Bool[Tensor, " n"],
        state: Float[Tensor, "n o"],
        view: SceneView,
        seeds: Int[Tensor, " n"],
        before: Obs,
    ) -> Obs:
        """First observations of the worlds that start (`mask`), and `before` of the others; `on_device`."""
        begun = self._noisy(state, seeds, torch.zeros_like(seeds))
        first = {"state": begun, **self._instructions.of(view, seeds)}
        self._delay.begin_where(mask, first, self._randomise.obs_delays(seeds))
        return {key: torch.where(mask.unsqueeze(1), value, before[key]) for key, value in first.items()}

    def visuals_of(self, seed: int) -> VisualRandomisation | None:
        """Appearance in the episode of this seed; None: that of the model."""
        if not self._randomise.changes_visuals:
            return None
        if self._shown is None or self._shown[0] != seed:
            self._shown = seed, self._randomise.visuals(self._engine.scene, torch.tensor([seed]))[0]
        return self._shown[1]

    def save(self) -> dict[str, Tensor]:
        return self._delay.save()

    def load(
        self,
        saved: Mapping[str, Any],
        state: Float[Tensor, "n o"],
        view: SceneView,
        seeds: Int[Tensor, " n"],
    ) -> Obs:
        """Restore and return the observations of a snapshot. state: the delayed one at that time."""
        every = torch.arange(len(state), device=seeds.device)
        self._set_visuals(every, seeds)
        if self._randomise.obs_delay[1]:
            self._delay.load(saved, seeds.device)
            return self._delay.delayed()
        pictures = self._cameras.take(view.physics, range(len(state)))
        return {"state": state, **pictures, **self._instructions.of(view, seeds)}

    def _set_visuals(self, worlds: Int[Tensor, " k"], seeds: Int[Tensor, " k"]) -> None:
        if self._randomise.changes_visuals and self._cameras.specs:
            self._cameras.begin(worlds.tolist(), self._randomise.visuals(self._engine.scene, seeds))

    def _noisy(
        self, state: Float[Tensor, "n o"], seeds: Int[Tensor, " n"], age: Int[Tensor, " n"]
    ) -> Float[Tensor, "n s"]:
        kept = state if self._kept is None else state[:, self._kept]
        return kept if self._spread is None else seen(kept, self._spread, seeds, age)


def to_host(obs: Obs) -> Obs:
    """Copy of observations in the host's memory, for the caller to keep."""
    return {key: value.clone().cpu() for key, value in obs.items()}
