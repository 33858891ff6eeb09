"""Lanes of `arm6/peg`; see `sim.arms.arm6.peg`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec
from sim.arms.arm6.body import JOINTS, SimulatedArm
from sim.arms.arm6.peg import BLOCK, SPEED_RAD_S, PegTask, peg_spec
from sim.arms.arm6.peg_cell import CAMERAS, START_RAD, PegCell, peg_model
from sim.render.pictures import CameraPictures, LaneRenderer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_flag, check_pixels, check_reward, check_steps

REQUIRES = ("mujoco",)
# Nodes, messages and cameras delay commands on the robot, and policies that are trained without a delay fail
# there more often (docs/recording.md has the figures).
LATENCY_MS = 60.0
COMMAND_HZ = 50.0  # of the safety filter, at least; each command is within the joints' speeds


@dataclass(frozen=True, slots=True)
class PegLanes:
    """Builder of lanes.

    cameras: names joined by "+", each for a square picture of `image_size` pixels, or "none". velocities:
    observe joint velocities as well. control_hz: rate of observations and actions. latency_ms: longest time
    from an observation until a command that is made from it reaches the servos, for sensors, messages and the
    policy's computation; each episode has its own, uniform from 0.
    """

    task: str = "peg"
    reward: str = "sparse"
    max_episode_steps: int = 200
    render_size: int = 240
    cameras: str = "front+wrist"
    image_size: int = 128
    velocities: bool = False
    control_hz: float = 20.0
    latency_ms: float = LATENCY_MS

    def __post_init__(self) -> None:
        check_reward(self.reward)
        check_steps(self.max_episode_steps)
        for name in self.camera_names:
            if name not in CAMERAS:
                raise UnknownNameError("camera of arm6/peg", name, (*CAMERAS, "none"))
        check_pixels("image_size", self.image_size)
        check_flag("velocities", self.velocities)
        if not isinstance(self.control_hz, int | float) or not 1.0 <= self.control_hz <= 100.0:
            raise ConfigError(f"control_hz is {self.control_hz!r}; expected 1 to 100.")
        if not isinstance(self.latency_ms, int | float) or not 0.0 <= self.latency_ms <= 1000.0:
            raise ConfigError(f"latency_ms is {self.latency_ms!r}; expected 0 to 1000.")

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the cameras to observe."""
        return () if self.cameras == "none" else tuple(str(self.cameras).split("+"))

    @property
    def name(self) -> str:
        """Name of the environment with the options of its contract that differ from the defaults."""
        contract = ("cameras", "image_size", "velocities", "control_hz")
        given = [(each.name, each.default) for each in fields(self) if each.name in contract]
        words = [f"{key}={_word(value)}" for key, usual in given if (value := getattr(self, key)) != usual]
        return f"arm6/{self.task}" + (f":{','.join(words)}" if words else "")

    @property
    def spec(self) -> EnvSpec:
        low_rad, high_rad = peg_model().jnt_range[: len(JOINTS)].T
        return peg_spec(
            self.name,
            low_rad,
            high_rad,
            cameras=self.camera_names,
            image_size=self.image_size,
            velocities=self.velocities,
            control_hz=float(self.control_hz),
            max_episode_steps=self.max_episode_steps,
        )

    def __call__(self) -> PegLane:
        return PegLane(self)


class PegLane:
    """One arm and its block; see `sim.vec.lane.Lane`. Success ends the episode.

    An action is the command at the end of its step, as in the recordings; between two the commands are
    interpolated, as on the robot.
    """

    info_keys = ("depth_m",)

    def __init__(self, options: PegLanes) -> None:
        self._options, self.spec, self._task = options, options.spec, PegTask()
        self._cell = PegCell()
        self._body = body = self._cell.body
        scene = "arm6/peg", body.model, body.data, options.image_size, options.camera_names
        self._cameras = CameraPictures(*scene) if options.camera_names else None
        self._view = LaneRenderer(body.model, body.data, options.render_size, camera="front")
        self._commands = math.ceil(COMMAND_HZ / options.control_hz)  # in a control step
        self._command_s = 1.0 / options.control_hz / self._commands
        self._most_rad = self._command_s * np.array(SPEED_RAD_S)
        self._delayed = DelayedCommands(self._body, self._command_s)
        self.unread = False  # see `sim.vec.lane.PictureLane`
        self._age = 0

    def reset(self, seed: int) -> LaneObs:
        drawn = np.random.default_rng(derive_seed("arm6/peg", seed))
        self._cell.place(drawn.uniform(size=2))
        self._delayed.reset(1e-3 * self._options.latency_ms * drawn.uniform())
        self._age = 0
        return self._observed()

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        begun_rad = self._delayed.newest_rad
        for k in range(1, self._commands + 1):
            wanted_rad = begun_rad + k / self._commands * (action - begun_rad)
            step_rad = np.clip(wanted_rad - self._delayed.newest_rad, -self._most_rad, self._most_rad)
            self._delayed.send(self._delayed.newest_rad + step_rad)
        self._age += 1
        where = self._body.tool_m(), self._cell.block_m
        success = self._task.success(*where)
        truncated = self._age >= self._options.max_episode_steps and not success
        draw = not self.unread or success or truncated
        reward = self._task.reward(*where, self._options.reward == "dense")
        return self._observed(draw), reward, success, truncated, success

    def info(self) -> Sequence[float]:
        return [self._cell.depth_m()]

    def render(self) -> NDArray[np.uint8]:
        return self._view.render()

    def close(self) -> None:
        self._view.close()
        if self._cameras is not None:
            self._cameras.close()

    def _observed(self, draw: bool = True) -> LaneObs:
        position, velocity = self._body.read()
        state = np.concatenate([position, velocity]) if self._options.velocities else position
        numbers = {"state": state.astype(np.float32), BLOCK: self._cell.block_m.astype(np.float32)}
        return {**numbers, **self._cameras.take()} if self._cameras is not None and draw else numbers


class DelayedCommands:
    """Commands at a constant rate, each of which reaches the servos after a delay."""

    def __init__(self, body: SimulatedArm, period_s: float) -> None:
        self._body, self._period_s = body, period_s
        self.reset(0.0)

    def reset(self, delay_s: float) -> None:
        """Start at rest at the task's start, with this delay [s]."""
        periods = int(delay_s / self._period_s)
        self._part_s = delay_s - periods * self._period_s  # of a period, before its command arrives
        self._on_the_way = deque([np.array(START_RAD)] * (periods + 1), maxlen=periods + 1)

    @property
    def newest_rad(self) -> Float[ndarray, " 6"]:
        """The last command, whether it has arrived or not."""
        return self._on_the_way[-1]

    def send(self, target_rad: Float[ndarray, " 6"]) -> None:
        """Send a command, and advance the arm by one period."""
        if self._part_s > 0.0:
            self._body.advance(self._part_s)
        self._on_the_way.append(target_rad)
        self._body.command(self._on_the_way[0])
        self._body.advance(self._period_s - self._part_s)


def _word(value: object) -> str:
    """A value as it is written in a name."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
