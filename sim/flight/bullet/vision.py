"""Flights in PyBullet with a camera: images at their own rate, inertial sensors at the control rate."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from policies.flight.vision import attitude, gained_velocity
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, UInt8
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera, FloorView, exposed
from sim.engines.bullet.motion import rotation
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import POS, QUAT, VEL, rotation_matrix
from sim.flight.bullet.flights import bullet_flights
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses

FRAMES = 3  # frames of different ages in one observation
APART = 2  # camera periods between two of them
KEPT = APART * (FRAMES - 1) + 1  # frames that are stored
ACCELEROMETER_STD_M_S2 = 0.3  # noise of a step, with the motors running
ACCELEROMETER_BIAS_M_S2 = 0.1  # standard deviation over crafts, per axis


@dataclass(slots=True)
class Record:
    """Frames of flights and the poses of the camera, of the n drones that had not left the box."""

    frames: list[UInt8[ndarray, "n h w"]] = field(default_factory=list)
    tilt: list[Float[Tensor, "n 3"]] = field(default_factory=list)
    pose: list[Float[Tensor, "n 5"]] = field(default_factory=list)


class VisionFlights:
    """`num` hovering flights in PyBullet with a camera each, and the starts of the `quad` engine.

    Call `look` once per control step, before acting; then `image` and `state` are the policy's observations.
    Frames from before the start are rendered as if the craft had flown at its start attitude with a thrust of
    its weight.
    """

    def __init__(
        self,
        craft: Craft,
        task: HoverTask,
        history: int,
        num: int,
        seed: int,
        scene: AirEffects,
        eye: FloorCamera,
        camera_hz: float,
    ) -> None:
        self.every = steps_per_picture(camera_hz, task.dt_s)
        self.flights = bullet_flights(craft, task, FlightSenses(history, integral=False), num, seed, scene)
        self.view = FloorView(eye, -scene.height_m)
        self.task, self.history, self._step = task, history, -1
        self._rng = np.random.default_rng(seed)
        self._gain = 1.0 + eye.gain * self._rng.uniform(-1.0, 1.0, num)
        self._frames: list[ndarray] = []
        self._tilts: list[Tensor] = []
        self._bias = torch.from_numpy(self._rng.normal(0.0, ACCELEROMETER_BIAS_M_S2, (num, 3))).float()
        self._felt: list[Tensor] = []  # acceleration in level axes since the oldest frame, oldest first
        self._velocity = torch.zeros(0)
        self.flying = np.ones(num, dtype=bool)  # has not left the box
        self.pictures, self.fresh = 0, False
        self.record: Record | None = None  # filled with frames and poses where given

    def close(self) -> None:
        self.view.close()

    def look(self) -> None:
        """Read the sensors, and take a frame where one is due; then `fresh` is True."""
        flights, record = self.flights, self.record
        self._step += 1
        self.flying &= ~self.task.outside(flights.state, self.task.box_m).numpy()
        self.fresh = self._step % self.every == 0
        self._acceleration()
        if self.fresh:
            self._frames = [self._picture(0.0), *(self._frames or self._before())][:KEPT]
            self._tilts = [self._tilt(), *(self._tilts or [self._tilt()] * KEPT)][:KEPT]
            if record is not None:
                record.frames.append(self._frames[0][self.flying])
                record.tilt.append(self._tilts[0][self.flying])
                record.pose.append(truth(flights.state)[self.flying][:, [0, 1, 2, 6, 7]])

    def _picture(self, ago_s: float) -> UInt8[ndarray, "n h w"]:
        """Frames of all drones, now or some time ago assuming a constant attitude."""
        state = self.flights.state
        turn = rotation(state[QUAT].double().numpy())
        push = GRAVITY_M_S2 * (turn[:, 2] - np.array([[0.0], [0.0], [1.0]]))
        position, velocity = (state[rows].double().numpy() for rows in (POS, VEL))
        seen = self.view.look(position - ago_s * velocity + 0.5 * ago_s**2 * push, turn, self.flying)
        self.pictures += int(self.flying.sum())
        return exposed(seen, self._gain, self.view.eye.noise, self._rng)

    def _before(self) -> list[UInt8[ndarray, "n h w"]]:
        """Frames from before the start, newest first."""
        return [self._picture(age * self.every * self.task.dt_s) for age in range(1, KEPT)]

    def image(self) -> UInt8[Tensor, "n h w 3"]:
        """Grey frames as channels: the newest, and each `APART` periods before the previous one."""
        return torch.from_numpy(np.stack(self._frames[::APART], axis=-1))

    def state(self) -> Float[Tensor, "n s"]:
        """State input of a `VisionPolicy`: up, rates, last actions, up at each frame, frame age, velocity."""
        obs = self.flights.obs.T
        age = torch.full((len(obs), 1), float(self._step % self.every) / self.every)
        actions = obs[:, SENSED_SIZE : SENSED_SIZE + 4 * self.history]
        gained = gained_velocity(torch.stack(self._felt), self.task.dt_s, self._span)
        return torch.cat([obs[:, 9:12], obs[:, 15:18], actions, *self._tilts[::APART], age, gained], dim=1)

    @property
    def _span(self) -> int:
        """Control steps from the oldest frame of an observation to its newest."""
        return APART * (FRAMES - 1) * self.every

    def _acceleration(self) -> None:
        """Measure the acceleration of the last step, without gravity, in level axes [m/s^2]."""
        state, tilt = self.flights.state, self._tilt()
        velocity = state[VEL].T
        turn = rotation_matrix(state[QUAT]).T.reshape(-1, 3, 3)
        if not self._felt:  # before the start: constant attitude, a thrust of the weight
            force = torch.zeros_like(velocity)
            force[:, 2] = GRAVITY_M_S2
            self._felt = [self._level(force, tilt)] * self._span
        else:
            rise = (velocity - self._velocity) / self.task.dt_s
            rise[:, 2] += GRAVITY_M_S2
            noise = torch.from_numpy(self._rng.normal(0.0, ACCELEROMETER_STD_M_S2, rise.shape)).float()
            force = (turn.transpose(1, 2) @ rise.unsqueeze(2)).squeeze(2) + self._bias + noise
            # Steps between the oldest frame and the previous call.
            since = self._span + (self._step - 1) % self.every
            self._felt = [*self._felt[-since:], self._level(force, tilt)]
            if self.fresh:
                self._felt = self._felt[-self._span :]
        self._velocity = velocity.clone()

    def _level(self, force: Float[Tensor, "n 3"], up: Float[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
        """Specific force in body axes to acceleration in level ones, by the measured tilt."""
        ahead = up.new_tensor([[1.0, 0.0]]).expand(len(up), 2)
        level = (attitude(up, ahead).view(-1, 3, 3) @ force.unsqueeze(2)).squeeze(2)
        return level - level.new_tensor([0.0, 0.0, GRAVITY_M_S2])

    def _tilt(self) -> Tensor:
        return self.flights.obs[9:12].T.clone()


def truth(state: Float[Tensor, "17 n"]) -> Float[Tensor, "n 8"]:
    """True position [m] and velocity [m/s] in the world, cos and sin of the heading."""
    matrix = rotation_matrix(state[QUAT])
    ahead = matrix[[0, 3]]
    heading = ahead / ahead.norm(dim=0).clamp(min=1e-6)
    return torch.cat([state[POS], state[VEL], heading]).T.clone()


def steps_per_picture(camera_hz: float, dt_s: float) -> int:
    """Control steps per frame. Raises ConfigError where the period is not a whole number of them."""
    steps = round(1.0 / (camera_hz * dt_s)) if camera_hz > 0.0 else 0
    if steps < 1 or abs(steps * dt_s * camera_hz - 1.0) > 0.02:
        raise ConfigError(
            f"camera_hz = {camera_hz:g} is impossible at {1.0 / dt_s:g} Hz control: the camera's period must "
            "be a whole number of control steps, for example with 25, 33.3 or 50."
        )
    return steps


def vision_spec(task: HoverTask, history: int, eye: FloorCamera, camera_hz: float, name: str) -> EnvSpec:
    """Contract of a policy that flies with this camera. name: of the environment."""
    apart_ms = 1000.0 * APART / camera_hz
    image = ArraySpec(
        (eye.px, eye.px, FRAMES),
        "uint8",
        f"grey, looking down, {eye.fov_deg:g} deg; channels: now, {apart_ms:.0f} ms and {2 * apart_ms:.0f} "
        "ms ago",
    )
    unit = (
        f"up 1, rates rad/s, last {history} actions 1, up at each picture 1, age of the newest picture in "
        "periods, all in body axes; velocity now less its mean between the pictures, m/s, level axes"
    )
    state = ArraySpec((6 + 4 * history + 3 * FRAMES + 4,), unit=unit)
    action = ActionSpec((-1.0,) * 4, (1.0,) * 4, "motor command: -1 stopped, 1 full speed")
    return EnvSpec(name, {"image.down": image, "state": state}, action, task.max_steps, 1 / task.dt_s)
