"""Flights in PyBullet that see through a camera: pictures at their own rate, inertial sensors at the control rate."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.engines.bullet.effects import Scene
from sim.engines.bullet.floor_view import Eye, FloorView, exposed
from sim.engines.bullet.motion import rotation
from sim.engines.bullet.step import bullet_flights
from sim.engines.quad.craft import Craft
from sim.engines.quad.memory import SEEN_ROWS, Senses
from sim.engines.quad.rows import POS, QUAT, VEL, rotation_matrix
from sim.tasks.hover import HoverTask

FRAMES = 3  # pictures of different ages in one image
APART = 2  # pictures between two of them
KEPT = APART * (FRAMES - 1) + 1  # pictures that are remembered


@dataclass(slots=True)
class Record:
    """What was seen and what was true; f pictures, t steps, n drones."""

    every: int  # steps per picture
    frames: list[UInt8[ndarray, "n h w"]] = field(default_factory=list)
    frame_tilt: list[Float[Tensor, "n 3"]] = field(default_factory=list)
    frame_truth: list[Float[Tensor, "n 8"]] = field(default_factory=list)
    frame_flying: list[Bool[ndarray, " n"]] = field(default_factory=list)
    state: list[Float[Tensor, "n s"]] = field(default_factory=list)
    truth: list[Float[Tensor, "n 8"]] = field(default_factory=list)
    flying: list[Bool[ndarray, " n"]] = field(default_factory=list)


class VisionFlights:
    """`num` hovering flights in PyBullet, start for start those of the `quad` engine, with a camera under each.

    Call `look` once per control step, before acting; `image` and `state` are what a policy sees then.
    """

    def __init__(
        self, craft: Craft, task: HoverTask, history: int, num: int, seed: int, scene: Scene, eye: Eye, camera_hz: float
    ) -> None:
        self.every = steps_per_picture(camera_hz, task.dt_s)
        self.flights = bullet_flights(craft, task, Senses(history, integral=False), num, seed, scene)
        self.view = FloorView(eye, -scene.height_m)
        self.task, self.history, self._step = task, history, -1
        self._rng = np.random.default_rng(seed)
        self._gain = 1.0 + eye.gain * self._rng.uniform(-1.0, 1.0, num)
        self._frames: list[ndarray] = []
        self._tilts: list[Tensor] = []
        self.flying = np.ones(num, dtype=bool)  # has not left the box
        self.pictures, self.fresh = 0, False
        self.record: Record | None = None  # where to write down what is seen

    def close(self) -> None:
        self.view.close()

    def look(self) -> None:
        """A picture where one is due; then `fresh` is True."""
        flights, record = self.flights, self.record
        self._step += 1
        self.flying &= ~self.task.outside(flights.state, self.task.box_m).numpy()
        self.fresh = self._step % self.every == 0
        if self.fresh:
            position, quat = (flights.state[rows].double().numpy() for rows in (POS, QUAT))
            seen = self.view.look(position, rotation(quat), self.flying)
            self.pictures += int(self.flying.sum())
            newest = exposed(seen, self._gain, self.view.eye.noise, self._rng)
            self._frames = [newest, *(self._frames or [newest] * KEPT)][:KEPT]
            self._tilts = [self._tilt(), *(self._tilts or [self._tilt()] * KEPT)][:KEPT]
            if record is not None:
                record.frames.append(newest)
                record.frame_tilt.append(self._tilt())
                record.frame_truth.append(truth(flights.state))
                record.frame_flying.append(self.flying.copy())
        if record is not None:
            record.state.append(self.state())
            record.truth.append(truth(flights.state))
            record.flying.append(self.flying.copy())

    def image(self) -> UInt8[Tensor, "n h w 3"]:
        """Grey pictures of now, and of `APART` pictures earlier each, as channels."""
        return torch.from_numpy(np.stack(self._frames[::APART], axis=-1))

    def state(self) -> Float[Tensor, "n s"]:
        """What is up in body axes, rates, the last actions, what was up at each picture, age of the newest one."""
        obs = self.flights.obs.T
        age = torch.full((len(obs), 1), float(self._step % self.every) / self.every)
        actions = obs[:, SEEN_ROWS : SEEN_ROWS + 4 * self.history]
        return torch.cat([obs[:, 9:12], obs[:, 15:18], actions, *self._tilts[::APART], age], dim=1)

    def _tilt(self) -> Tensor:
        return self.flights.obs[9:12].T.clone()


def truth(state: Float[Tensor, "17 n"]) -> Float[Tensor, "n 8"]:
    """Position [m], velocity [m/s], cos and sin of the heading."""
    matrix = rotation_matrix(state[QUAT])
    ahead = matrix[[0, 3]]
    heading = ahead / ahead.norm(dim=0).clamp(min=1e-6)
    return torch.cat([state[POS], state[VEL], heading]).T.clone()


def steps_per_picture(camera_hz: float, dt_s: float) -> int:
    """Raises ConfigError for a rate that is no whole number of control steps."""
    steps = round(1.0 / (camera_hz * dt_s)) if camera_hz > 0.0 else 0
    if steps < 1 or abs(steps * dt_s * camera_hz - 1.0) > 0.02:
        raise ConfigError(
            f"camera_hz = {camera_hz:g} is impossible at {1.0 / dt_s:g} Hz control: a picture takes whole control "
            "steps, for example 25, 33.3 or 50."
        )
    return steps


def vision_spec(task: HoverTask, history: int, eye: Eye, camera_hz: float) -> EnvSpec:
    """The contract of a policy that sees through this camera."""
    apart_ms = 1000.0 * APART / camera_hz
    image = ArraySpec(
        (eye.px, eye.px, FRAMES), "uint8",
        f"grey, looking down, {eye.fov_deg:g} deg; channels: now, {apart_ms:.0f} ms and {2 * apart_ms:.0f} ms ago",
    )  # fmt: skip
    unit = (
        f"up 1, rates rad/s, last {history} actions 1, up at each picture 1, age of the newest picture in periods; "
        "all in body axes"
    )
    state = ArraySpec((6 + 4 * history + 3 * FRAMES + 1,), unit=unit)
    action = ActionSpec((-1.0,) * 4, (1.0,) * 4, "motor command: -1 stopped, 1 full speed")
    return EnvSpec(
        "pybullet/vision_hover", {"image.down": image, "state": state}, action, task.max_steps, 1 / task.dt_s
    )
