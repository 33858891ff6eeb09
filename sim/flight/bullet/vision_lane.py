"""`pybullet/vision_hover` as a lane: hover by a camera that looks down, for all verbs that run a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import derive_seed
from robo_rl.core.spec import EnvSpec
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera, FloorView
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, QUAT, VEL
from sim.env_names import join_options
from sim.flight.bullet.vision import VisionFlights, steps_per_picture, vision_spec
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.names import BY_CAMERA
from sim.tasks.flight.protocol import FlightOutcome
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_number, check_pixels, check_steps

REQUIRES = ("pybullet",)
EYE_M, MIDDLE_M = np.array([1.3, -1.3, 0.6]), np.zeros(3)  # of `render`
_UNNAMED = ("task", "reward", "render_size")  # options that change no episode


@dataclass(frozen=True)
class VisionLanes:
    """Builds lanes. history: last actions in the observation. px, camera_hz: of the camera. start_tilt_rad,
    start_speed_m_s: largest of a start.
    """

    task: str
    reward: str = "sparse"  # the only one; an option so that all suites take the same ones
    max_episode_steps: int = 500
    render_size: int = 256
    craft: str = "cf2x_l2f"
    history: int = 8
    px: int = 48
    camera_hz: float = 25.0
    start_tilt_rad: float = 0.5
    start_speed_m_s: float = 0.5

    def __post_init__(self) -> None:
        if self.task not in BY_CAMERA:
            raise UnknownNameError("pybullet task", self.task, BY_CAMERA)
        if self.reward != "sparse":
            raise ConfigError(f"vision_hover pays for success only, not '{self.reward}'; leave reward= out.")
        check_steps(self.max_episode_steps)
        check_pixels("render_size", self.render_size)
        check_number("history", self.history, 1, 100, whole=True)
        check_number("px", self.px, 16, 256, whole=True)
        check_number("camera_hz", self.camera_hz, 1.0, 100.0)
        check_number("start_tilt_rad", self.start_tilt_rad, 0.0, 3.15)
        check_number("start_speed_m_s", self.start_speed_m_s, 0.0, 100.0)
        steps_per_picture(self.camera_hz, HoverTask().dt_s)

    @property
    def name(self) -> str:
        """Name of the environment, with the options that differ from their defaults."""
        given = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _UNNAMED}
        usual = {item.name: item.default for item in fields(self)}
        changed = {key: value for key, value in given.items() if value != usual[key]}
        return f"pybullet/{self.task}{':' if changed else ''}{join_options(changed)}"

    @property
    def hover(self) -> HoverTask:
        return replace(
            HoverTask(),
            max_steps=self.max_episode_steps,
            start_tilt_rad=self.start_tilt_rad,
            start_speed_m_s=self.start_speed_m_s,
        )

    @property
    def spec(self) -> EnvSpec:
        return vision_spec(self.hover, self.history, FloorCamera(self.px), self.camera_hz, self.name)

    def __call__(self) -> VisionLane:
        return VisionLane(self)


class VisionLane:
    """One craft with its camera; see `sim.vec.lane.Lane`. Success is known at the end: the craft held the
    point.
    """

    info_keys: tuple[str, ...] = ()

    def __init__(self, options: VisionLanes) -> None:
        self._options, self.spec, self._task = options, options.spec, options.hover
        self._craft, self._scene = load_craft(options.craft), AirEffects()
        self._outside: FloorView | None = None
        self._flown: VisionFlights | None = None

    @property
    def _flights(self) -> VisionFlights:
        assert self._flown is not None, "reset comes first"
        return self._flown

    def reset(self, seed: int) -> LaneObs:
        if self._flown is not None:
            self._flown.close()
        options, own = self._options, derive_seed("vision lane", seed)
        self._flown = VisionFlights(
            self._craft, self._task, options.history, 1, own, self._scene, FloorCamera(options.px),
            options.camera_hz,
        )  # fmt: skip
        self._rows: list[tuple[torch.Tensor, ...]] = []
        return self._observed()

    @torch.no_grad()
    def step(self, action: NDArray[np.float32]) -> LaneStep:
        flights = self._flights.flights
        _, left = flights.advance(torch.from_numpy(action.copy()).unsqueeze(1))
        offset = self._task.relative(flights.state, flights.external, flights.task_state)[POS]
        self._rows.append((offset, flights.state[VEL], flights.task_state, left))
        terminated = bool(left[0])
        truncated = len(self._rows) >= self._task.max_steps and not terminated
        success = truncated and self._held()
        return self._observed(), float(success), terminated, truncated, success

    def _held(self) -> bool:
        """Success of a flight that has come to its end."""
        outcome = FlightOutcome(*(torch.stack(column) for column in zip(*self._rows, strict=True)))
        return bool(self._task.score(outcome).success[0])

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        if self._outside is None:
            self._outside = FloorView(FloorCamera(self._options.px), -self._scene.height_m)
            self._outside.show(self._craft)
        state, size = self._flights.flights.state[:, 0].double().numpy(), self._options.render_size
        return self._outside.from_outside(state[POS], state[QUAT], EYE_M, MIDDLE_M, size, size)

    def close(self) -> None:
        for view in (self._outside, self._flown):
            if view is not None:
                view.close()

    def _observed(self) -> LaneObs:
        self._flights.look()
        image, state = self._flights.image()[0].numpy(), self._flights.state()[0].numpy()
        return {"image.down": image, "state": state.astype(np.float32)}
