"""Gymnasium environments with the spaces, rewards and endings of gym-pybullet-drones, over this engine.

Facts are those of its HoverAviary, MultiHoverAviary and VelocityAviary (commit 90b178a, 2026-05): 240 Hz
physics, 30 Hz decisions, a Crazyflie without motor lag. The code is ours, and so are the controllers behind
"pid" and "vel".
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy import ndarray

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.shapes import Float
from sim.engines.bullet.body import hull
from sim.engines.bullet.effects import AirEffects, check_scene, downwash_among, downwash_world_n, equipped
from sim.engines.bullet.motion import Motion, euler_angles, quaternion, to_world
from sim.engines.bullet.world import BulletWorld
from sim.engines.bullet.wrench import Drones, ExternalForces, rotor_heights, rotor_speeds, wrench
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import parameters
from sim.flight.bullet.aviary_actions import ACTS, ActionConversion

OBSERVATIONS = ("kin", "rgb")
IMAGE_PX = (64, 48)  # width and height of "rgb"
RENDER_PX = (640, 480)


class Aviary(gymnasium.Env[ndarray, ndarray]):
    """`num_drones` drones in one arena. obs: "kin" or "rgb"; act: rpm, one_d_rpm, pid, vel or one_d_pid.

    kin: per drone position [m], roll-pitch-yaw [rad], velocity [m/s, world] and angular velocity [rad/s,
    world], then its actions of the last half second, oldest first. `effects`: ground, downwash, drag, with
    the coefficients of cf2x_gym where the craft has none; without any it is the PYB physics of
    gym-pybullet-drones. Enums of that package are accepted. Raises ConfigError for invalid arguments.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (declared like this by Gymnasium)

    def __init__(
        self,
        *,
        num_drones: int = 1,
        obs: Any = "kin",
        act: Any = "rpm",
        pyb_freq: int = 240,
        ctrl_freq: int = 30,
        initial_xyzs: Float[ndarray, "n 3"] | None = None,
        initial_rpys: Float[ndarray, "n 3"] | None = None,
        craft: str = "cf2x_gym",
        effects: tuple[str, ...] = (),
        render_mode: str | None = None,
    ) -> None:
        if ctrl_freq < 1 or pyb_freq % ctrl_freq:
            raise ConfigError(f"pyb_freq = {pyb_freq} must be a multiple of ctrl_freq = {ctrl_freq}.")
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(
                f"render_mode = {render_mode} is not known: None or rgb_array. There is no window."
            )
        self.num_drones, self.effects = num_drones, tuple(effects)
        scene = AirEffects(self.effects, rate_hz=float(pyb_freq))
        check_scene(scene)
        self.craft = equipped(
            load_craft(craft) if "drag" in effects else load_craft(craft, rotor_drag_n_s2_m=(0.0, 0.0)), scene
        )
        self.pyb_freq, self.ctrl_freq, self.render_mode = pyb_freq, ctrl_freq, render_mode
        self.obs_type = _one_of("obs", obs, OBSERVATIONS)
        self.act = ActionConversion(_one_of("act", act, tuple(ACTS)), self.craft, num_drones, 1.0 / ctrl_freq)
        self.buffer = ctrl_freq // 2
        self._initial = _initial(self.craft, num_drones, initial_xyzs, initial_rpys)
        self._world = BulletWorld(self.craft, num_drones, 1.0 / pyb_freq, per_arena=num_drones)
        self._drones = Drones.of(self.craft, parameters(self.craft, 1.0 / pyb_freq).numpy(), num_drones)
        self.action_space = spaces.Box(-1.0, 1.0, (num_drones, self.act.size), np.float32)
        self.observation_space = self._observation_space()
        self._steps, self._done = 0, True
        self.motion = self._initial

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ndarray, dict[str, Any]]:
        """Start an episode at rest with stopped rotors, just over the floor or at the given positions."""
        super().reset(seed=seed)
        self._world.place(self._initial)
        self._steps, self._done = 0, False
        self.motion = self._world.motion()
        self.rotors = np.zeros((4, self.num_drones))
        self._past = [np.zeros((self.num_drones, self.act.size), np.float32)] * self.buffer
        self.act.restart()
        return self._observe(), {}

    def step(self, action: ndarray) -> tuple[ndarray, float, bool, bool, dict[str, Any]]:
        """One control step: `pyb_freq / ctrl_freq` steps of physics."""
        if self._done:
            raise EnvError("step before reset: call reset() first.")
        given = self._given(action)
        given = np.clip(given, self.action_space.low, self.action_space.high)  # type: ignore[attr-defined]
        goal = self.act.rotors(given, self.motion, self.rotors)
        for _ in range(self.pyb_freq // self.ctrl_freq):
            middle, self.rotors = rotor_speeds(self.rotors, goal, self._drones)
            self._world.step(*wrench(self._drones, self.motion, middle, self._outside()))
            self.motion = self._world.motion()
        self._past = [*self._past[1:], given] if self.buffer else []
        reward, terminated, truncated = self.score()
        self._steps += 1
        return self._observe(), reward, terminated, truncated, {}

    def _given(self, action: ndarray) -> ndarray:
        """The action with the shape (n, a). Raises EnvError for another size and for non-finite values."""
        given, size = np.asarray(action, np.float32), (self.num_drones, self.act.size)
        if given.size != size[0] * size[1]:
            raise EnvError(
                f"The action has shape {given.shape}, and act = {self.act.name} of {size[0]} drones takes "
                f"{size}. Give an action of that shape, or choose another act: {', '.join(ACTS)}."
            )
        if not np.isfinite(given).all():
            raise EnvError(f"The action {given.tolist()} is not finite. Give finite numbers.")
        return given.reshape(size)

    def score(self) -> tuple[float, bool, bool]:
        """Returns (reward, terminated, truncated) of the current state."""
        raise NotImplementedError

    @property
    def time_s(self) -> float:
        """Time from the reset to the beginning of the scored step, as gym-pybullet-drones measures it."""
        return self._steps / self.ctrl_freq

    def render(self) -> ndarray | None:
        if self.render_mode is None:
            return None
        middle = self.motion.position_m.mean(1)
        eye = middle + np.array([-1.0, -0.9, 0.6])
        return self._world.look(0, eye, middle, np.array([0.0, 0.0, 1.0]), *RENDER_PX).rgb

    def close(self) -> None:
        self._world.close()

    def _outside(self) -> ExternalForces:
        force = None
        if "downwash" in self.effects and self.num_drones > 1:
            push_n = downwash_among(self.craft, self.motion.position_m, self.num_drones)
            force = downwash_world_n(push_n, self.motion.turn)
        heights = rotor_heights(self.craft, self.motion, 0.0) if "ground" in self.effects else None
        return ExternalForces(force, height_m=heights)

    def _observation_space(self) -> spaces.Box:
        if self.obs_type == "rgb":
            width, height = IMAGE_PX
            return spaces.Box(0, 255, (self.num_drones, height, width, 4), np.uint8)
        low = [-np.inf] * 2 + [0.0] + [-np.inf] * 9 + [-1.0] * (self.buffer * self.act.size)
        high = [np.inf] * 12 + [1.0] * (self.buffer * self.act.size)
        return _box(low, high, self.num_drones)

    def _observe(self) -> ndarray:
        if self.obs_type == "rgb":
            views = [self._world.camera(i, *IMAGE_PX).rgb for i in range(self.num_drones)]
            return np.concatenate([views, np.full((*np.shape(views)[:3], 1), 255)], axis=-1).astype(np.uint8)
        return np.concatenate([kinematics(self.motion), *self._past], axis=1).astype(np.float32)


class HoverAviary(Aviary):
    """One drone rises to (0, 0, 1) m and hovers. Reward max(0, 2 - distance^4), at most 484 in 8 s."""

    goal_m = np.array([[0.0], [0.0], [1.0]])
    reach_m, tilt_rad, seconds = 1.5, 0.4, 8.0

    def score(self) -> tuple[float, bool, bool]:
        return hover_score(self, self.goal_m)


class MultiHoverAviary(Aviary):
    """Drone i rises by 1 / (i + 1) m from its start. Reward: sum over drones of max(0, 2 - distance^4)."""

    reach_m, tilt_rad, seconds = 2.0, 0.5, 8.0

    def __init__(self, *, num_drones: int = 2, **options: Any) -> None:
        super().__init__(num_drones=num_drones, **options)
        rise = np.zeros((3, num_drones))
        rise[2] = 1.0 / (1.0 + np.arange(num_drones))
        self.goal_m = self._initial.position_m + rise

    def score(self) -> tuple[float, bool, bool]:
        return hover_score(self, self.goal_m)


class VelocityAviary(Aviary):
    """Fly with a velocity: direction (3) and share of the speed limit (0 ... 1). Reward -1, no end.

    Observation, per drone: position, quaternion xyzw, roll-pitch-yaw, velocity, angular velocity, rotor
    speeds [rpm].
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(act="vel", ctrl_freq=options.pop("ctrl_freq", 240), **options)
        self.action_space = _box([-1.0, -1.0, -1.0, 0.0], [1.0] * 4, self.num_drones)

    def score(self) -> tuple[float, bool, bool]:
        return -1.0, False, False

    def _observation_space(self) -> spaces.Box:
        high = [np.inf] * 3 + [1.0] * 4 + [np.pi] * 3 + [np.inf] * 6 + [self.craft.max_rpm] * 4
        low = [-np.inf] * 2 + [0.0] + [-1.0] * 4 + [-np.pi] * 3 + [-np.inf] * 6 + [0.0] * 4
        return _box(low, high, self.num_drones)

    def _observe(self) -> ndarray:
        seen, rpm = kinematics(self.motion), self.rotors.T * self.craft.max_rpm
        quat = self.motion.quat_wxyz[[1, 2, 3, 0]].T
        obs = np.concatenate([seen[:, 0:3], quat, seen[:, 3:12], rpm], axis=1).astype(np.float32)
        return np.clip(obs, self.observation_space.low, self.observation_space.high)  # type: ignore[attr-defined]


def hover_score(
    env: HoverAviary | MultiHoverAviary, goal_m: Float[ndarray, "3 n"]
) -> tuple[float, bool, bool]:
    """Reward sum max(0, 2 - d^4); ends within 0.1 mm in total, out of range, tilted too far, or after 8 s."""
    position = env.motion.position_m
    distance = np.linalg.norm(position - goal_m, axis=0)
    reward = float(np.maximum(0.0, 2.0 - distance**4).sum())
    roll, pitch, _ = euler_angles(env.motion.quat_wxyz)
    away = bool((np.abs(position[:2]) > env.reach_m).any() or (position[2] > 2.0).any())
    tilted = bool((np.abs([roll, pitch]) > env.tilt_rad).any())
    return reward, bool(distance.sum() < 1e-4), away or tilted or env.time_s > env.seconds


def kinematics(motion: Motion) -> Float[ndarray, "n 12"]:
    """Position [m], roll-pitch-yaw [rad], velocity [m/s], angular velocity [rad/s], in the world."""
    spin = to_world(motion.turn, motion.rate_rad_s)
    parts = [motion.position_m, euler_angles(motion.quat_wxyz), motion.velocity_m_s, spin]
    found: ndarray = np.concatenate(parts).T
    return found


def _initial(
    craft: Any, num: int, xyzs: Float[ndarray, "n 3"] | None, rpys: Float[ndarray, "n 3"] | None
) -> Motion:
    """Start at rest at positions [m] and roll-pitch-yaw [rad]; default: in a line, 10 cm over the floor."""
    _, height_m = hull(craft)
    arm_m = float(np.hypot(*craft.rotors_m[0]))
    apart = 4.0 * arm_m * np.arange(num)
    places = (
        np.stack([apart, apart, np.full(num, 0.5 * height_m + 0.1)], axis=1)
        if xyzs is None
        else np.asarray(xyzs)
    )
    turns = np.zeros((num, 3)) if rpys is None else np.asarray(rpys)
    for name, values in (("initial_xyzs", places), ("initial_rpys", turns)):
        if values.shape != (num, 3):
            raise ConfigError(f"{name} has shape {values.shape}; expected ({num}, 3) for {num} drones.")
    return Motion.at_rest(places.T.astype(np.float64), quaternion(turns.T.astype(np.float64)))


def _box(low: list[float], high: list[float], num: int) -> spaces.Box:
    """Box (num, a) with the same bounds for every drone."""
    bounds = [np.tile(np.array(bound, np.float32), (num, 1)) for bound in (low, high)]
    box: spaces.Box = spaces.Box(bounds[0], bounds[1], dtype=np.float32)
    return box


def _one_of(name: str, given: Any, known: tuple[str, ...]) -> str:
    value = str(getattr(given, "value", given))
    if value not in known:
        raise ConfigError(f"{name} = {value} is not known. Known: {', '.join(known)}.")
    return value
