"""MetaWorld's 50 tasks with the goal visible, faster than in the package and with bit-identical results.

A step leaves out what observation and success do not need: the gymnasium wrappers, the second forward pass
(kinematics suffice for positions), SciPy's general rotation code, and the dense reward unless it is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.adapters.metaworld_tasks import TASKS
from sim.render.pictures import CameraPictures, LaneRenderer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_flag, check_pixels, check_reward, check_steps

CONTROL_HZ = 80.0  # 5 physics steps of 2.5 ms
PACKAGE_STEPS = 500  # the package's own horizon
REQUIRES = ("metaworld", "mujoco", "gymnasium")
CAMERAS = ("topview", "corner", "corner2", "corner3", "behindGripper", "gripperPOV")
ROBOT = 4  # first numbers of the observation, which the robot measures itself: hand xyz, gripper opening


@dataclass(frozen=True, slots=True)
class MetaWorldLanes:
    """Builder of lanes of one task.

    Observation: `state` (39,), metres: hand xyz, gripper opening [0, 1], object 1 xyz and quaternion, object
    2 the same or zeros; the 18 numbers of the step before; goal xyz. Action: hand displacement xyz (1 = 1 cm)
    and gripper effort. reward "sparse": 1 in a step that ends with the task solved, else 0. "dense": the
    package's reward / 10, in [0, 1]. `terminate_on_success` ends the episode there.

    cameras: names joined by "+"; each adds `image.<camera>` (image_size, image_size, 3). state "robot": only
    hand xyz and gripper opening, `state` (4,); the expert reads the other 35 numbers from `privileged.task`,
    which no dataset and no policy has.
    """

    preload: ClassVar[tuple[str, ...]] = ("metaworld.env_dict",)

    task: str
    reward: str = "sparse"
    max_episode_steps: int = 200
    terminate_on_success: bool = True
    render_size: int = 240
    cameras: str = ""
    image_size: int = 84
    state: str = "all"

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownNameError("metaworld task", self.task, TASKS, "robo-rl info")
        check_reward(self.reward)
        check_steps(self.max_episode_steps, PACKAGE_STEPS)
        check_flag("terminate_on_success", self.terminate_on_success)
        for name in self.camera_names:
            if name not in CAMERAS:
                raise UnknownNameError("camera of metaworld", name, CAMERAS)
        check_pixels("image_size", self.image_size)
        if self.state not in ("all", "robot"):
            raise UnknownNameError("state of metaworld", self.state, ("all", "robot"))

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the cameras to observe."""
        return tuple(str(self.cameras).split("+")) if self.cameras else ()

    @property
    def name(self) -> str:
        """Name of the environment with the options that matter to a policy."""
        options = [f"cameras={self.cameras}"] if self.cameras else []
        if self.cameras and self.image_size != 84:
            options.append(f"image_size={self.image_size}")
        if self.state != "all":
            options.append(f"state={self.state}")
        return f"metaworld/{self.task}" + (f":{','.join(options)}" if options else "")

    @property
    def spec(self) -> EnvSpec:
        size = self.image_size, self.image_size, 3
        pictures = {f"image.{name}": ArraySpec(size, "uint8") for name in self.camera_names}
        numbers = {"state": ArraySpec((39,), "float32", "m")}
        if self.state == "robot":
            numbers = {
                "state": ArraySpec((ROBOT,), "float32", "m"),
                "privileged.task": ArraySpec((39 - ROBOT,), "float32", "m"),
            }
        return EnvSpec(
            name=self.name,
            obs=numbers | pictures,
            action=ActionSpec((-1.0,) * 4, (1.0,) * 4, "cm per step, gripper effort"),
            max_episode_steps=self.max_episode_steps,
            control_hz=CONTROL_HZ,
        )

    def __call__(self) -> MetaWorldLane:
        return MetaWorldLane(self)


class MetaWorldLane:
    """One task in one MuJoCo simulation; see `sim.vec.lane.Lane`."""

    info_keys: tuple[str, ...] = ()

    def __init__(self, options: MetaWorldLanes) -> None:
        import mujoco

        from sim.adapters.metaworld_reset import PureReset
        from sim.adapters.metaworld_success import SCREENS

        self._mujoco = mujoco
        self._options, self.spec = options, options.spec
        self._env = env = build_env(options.task)
        self._resetter = PureReset(env)
        self._screen = SCREENS[options.task]
        self._pictures = LaneRenderer(
            env.model, env.data, options.render_size, camera="corner2", upright=True
        )
        names = options.camera_names
        pictures = options.task, env.model, env.data, options.image_size, names
        self._cameras = CameraPictures(*pictures) if names else None
        self.unread = False  # see `sim.vec.lane.PictureLane`
        self._steps = 0
        # Views of simulator arrays: they stay valid as long as the simulation lives.
        self._hand, self._right, self._left = (
            env.data.body(name).xpos for name in ("hand", "rightclaw", "leftclaw")
        )
        space = env.sawyer_observation_space
        self._low, self._high = space.low, space.high
        self._frame = np.zeros(18)  # hand, gripper, objects of the newest step

    @property
    def model_and_data(self) -> tuple[Any, Any]:
        """The simulation, for further pictures of it."""
        return self._env.model, self._env.data

    def reset(self, seed: int) -> LaneObs:
        obs = self._resetter.reset(seed)
        self._frame = obs[:18].copy()
        self._steps = 0
        return self._seen(obs)

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._simulate(action)
        self._steps += 1
        obs = self._observe()
        if self._options.reward == "dense":
            reward, success = self._evaluate(obs, action)
            reward /= 10.0
        else:
            success = self._screen(self._env, obs) and self._evaluate(obs, action)[1]
            reward = float(success)
        terminated = success and self._options.terminate_on_success
        ended = terminated, self._steps >= self._options.max_episode_steps
        return self._seen(obs, draw=not self.unread or any(ended)), reward, *ended, success

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        """(s, s, 3), s = render_size, through the camera over the robot's left shoulder."""
        return self._pictures.render()

    def close(self) -> None:
        self._pictures.close()
        if self._cameras is not None:
            self._cameras.close()
        # Break the reference cycle made by `build_env`: 20 MB are freed now instead of at garbage collection.
        self._env.__dict__.pop("_get_quat_objects", None)

    def _seen(self, obs: NDArray[np.float64], draw: bool = True) -> LaneObs:
        """Observations of the options from the package's observation (39,); draw: with pictures, if any."""
        numbers = {"state": obs}
        if self._options.state == "robot":
            numbers = {"state": obs[:ROBOT], "privileged.task": obs[ROBOT:]}
        return {**numbers, **self._cameras.take()} if self._cameras is not None and draw else numbers

    def _simulate(self, action: NDArray[np.float32]) -> None:
        """Move the hand's mocap body, set the gripper, and simulate one control step."""
        env, data = self._env, self._env.data
        target = data.mocap_pos[0] + action[:3] * env.action_scale
        data.mocap_pos[0] = np.minimum(np.maximum(target, env.mocap_low), env.mocap_high)
        data.mocap_quat[0] = (1.0, 0.0, 1.0, 0.0)
        data.ctrl[:] = (action[3], -action[3])
        self._mujoco.mj_step(env.model, data, nstep=env.frame_skip)
        self._mujoco.mj_kinematics(env.model, data)  # positions after the last physics step

    def _observe(self) -> NDArray[np.float64]:
        """Observation (39,), in the package's order and clipped like it."""
        env = self._env
        frame = np.zeros(18)
        frame[:3] = self._hand
        gap = self._right - self._left
        frame[3] = min(math.sqrt(gap.dot(gap)) / 0.1, 1.0)
        positions, quaternions = env._get_pos_objects(), env._get_quat_objects()
        for i in range(len(positions) // 3):
            frame[4 + 7 * i : 7 + 7 * i] = positions[3 * i : 3 * i + 3]
            frame[7 + 7 * i : 11 + 7 * i] = quaternions[4 * i : 4 * i + 4]
        obs = np.concatenate((frame, self._frame, env._get_pos_goal()))
        self._frame = frame
        clipped: NDArray[np.float64] = np.minimum(np.maximum(obs, self._low), self._high)
        return clipped

    def _evaluate(self, obs: NDArray[np.float64], action: NDArray[np.float32]) -> tuple[float, bool]:
        """The package's dense reward and success."""
        self._mujoco.mj_forward(self._env.model, self._env.data)  # some tasks read contact forces
        reward, info = self._env.evaluate_state(obs, action)
        return float(reward), bool(info["success"])


def build_env(task: str) -> Any:
    """The package's environment without wrappers, goal visible, ready for seeds."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env: Any = ALL_V3_ENVIRONMENTS[task]()
    env._partially_observable = False
    del env.sawyer_observation_space  # cached with the goal hidden
    env._set_task_called = True
    env.seeded_rand_vec = True
    function = type(env)._get_quat_objects
    names = function.__globals__ | {"Rotation": _Rotation}
    env._get_quat_objects = MethodType(FunctionType(function.__code__, names), env)
    return env


class _Rotation:
    """The two methods of SciPy's `Rotation` that MetaWorld uses: 100 times faster, bit-identical results."""

    def __init__(self, quaternion: NDArray[np.float64]) -> None:
        self._quaternion = quaternion

    @classmethod
    def from_matrix(cls, matrix: NDArray[np.float64]) -> _Rotation:
        return cls(quaternion_of(matrix))

    def as_quat(self) -> NDArray[np.float64]:
        return self._quaternion


def quaternion_of(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """(x, y, z, w) of a rotation matrix (3, 3), by Markley, J. Guid. Control Dyn. 31(2), 2008.

    The largest of the diagonal and the trace selects the formula, which avoids division by small numbers.
    """
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    trace = a + e + i
    largest = max(a, e, i, trace)
    if largest == a:
        x, y, z, w = 1 - trace + 2 * a, d + b, g + c, h - f
    elif largest == e:
        x, y, z, w = d + b, 1 - trace + 2 * e, h + f, c - g
    elif largest == i:
        x, y, z, w = g + c, h + f, 1 - trace + 2 * i, d - b
    else:
        x, y, z, w = h - f, c - g, d - b, 1 + trace
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return np.array((x / norm, y / norm, z / norm, w / norm))
