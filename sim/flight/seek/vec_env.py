"""`drone/seek` as a `VecEnv`: velocity commands, a front camera and an instruction.

See sim/flight/seek/task.py for the task.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.flight.level import UNITS
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, Int64, UInt8
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, target_of
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC
from sim.compile.kernels import compile_kernel
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import (
    EXTERNAL_SIZE,
    POS,
    QUAT,
    RATE,
    VEL,
    parameters,
    rotation_matrix,
)
from sim.flight.control.levels import Ranges, make_level
from sim.flight.keyed_vec_env import Advanced, KeyedVecEnv
from sim.flight.seek.task import (
    CONTROL_HZ,
    HOLD_STEPS,
    MAX_STEPS,
    MAX_STEPS_FROM_BALL,
    RADIUS_M,
    begin,
    from_heading_axes,
    heading_axes,
    score,
)
from sim.flight.seek.view import front_camera, in_picture
from sim.flight.seek.words import TASKS, VARIANTS, colour_number, wording_number
from sim.vec.options import check_pixels, check_steps

LOOPS = 5  # runs of the velocity controller per control step
LOOP_S = 1.0 / (CONTROL_HZ * LOOPS)  # 100 Hz
RANGES = Ranges(speed_m_s=1.0, yaw_rate_rad_s=1.5)
ACTION = ActionSpec(
    (-RANGES.speed_m_s,) * 3 + (-RANGES.yaw_rate_rad_s,),
    (RANGES.speed_m_s,) * 3 + (RANGES.yaw_rate_rad_s,),
    UNITS["velocity"],
)
CAMERA, EXPERT_STATE = "image.front", "privileged.state"


class SeekVecEnv(KeyedVecEnv):
    """n quadcopters, each told the colour of a ball.

    Observations: `state` (7,), height [m], velocity [m/s] in level axes along the heading (x forward, y left,
    z up), x and y of the body's z axis in them, yaw rate [rad/s]; `image.front`; `instruction`;
    `target.front` (2,), place of the told ball in the picture, for training; `privileged.state` (3,), the
    told ball [m] in level axes along the heading, for the expert. Actions: `ACTION`, held for a step by the
    velocity controller of `sim.flight.control`. Success and reward as in `sim.flight.seek.task`;
    `info["task"]` (n,) is the number of the told colour in `COLOURS`.

    wordings: "training", or "new" for instructions that are in no demonstration. hold_s: time at the told
    ball that makes a success; with a longer one episodes are longer, too. from_ball: share of the episodes
    that start at another ball, where the told ball is mostly outside the picture. compiled: None compiles
    from 64 lanes on.
    """

    saved = (
        "_state",
        "_balls",
        "_colours",
        "_light",
        "_told_colour",
        "_words",
        "_episode_seed",
        "_age",
        "_held",
    )
    _state: Tensor  # (17, n)
    _balls: Tensor  # (k, 3, n)
    _colours: Tensor  # (k, 3, n)
    _light: Tensor  # (3, n)
    _told_colour: Tensor  # (n,)
    _words: Tensor  # (bytes, n)
    _held: Tensor  # (n,)

    def __init__(
        self,
        task: str,
        num_envs: int,
        *,
        reward: str = "sparse",  # the only one; an option so that all suites take the same ones
        max_episode_steps: int | None = None,
        image_size: int = 64,
        render_size: int = 256,
        wordings: str = "training",
        craft: str = "cf2x_l2f",
        hold_s: float = HOLD_STEPS / CONTROL_HZ,
        from_ball: float = 0.0,
        compiled: bool | None = None,
    ) -> None:
        super().__init__(num_envs)
        if task not in TASKS:
            raise UnknownNameError("drone task", task, TASKS)
        if reward != "sparse":
            raise ConfigError(f"drone tasks pay for success only, not '{reward}'; leave reward= out.")
        self.hold_steps = hold_steps(hold_s)
        self.from_ball = share_from_ball(from_ball)
        usual_steps = (MAX_STEPS_FROM_BALL if from_ball else MAX_STEPS) - HOLD_STEPS + self.hold_steps
        steps = usual_steps if max_episode_steps is None else max_episode_steps
        check_steps(steps)
        if self.hold_steps != HOLD_STEPS and self.hold_steps > steps:
            raise ConfigError(
                f"hold_s={hold_s:g} takes {self.hold_steps} steps and an episode has {steps}, so none can "
                "succeed. Leave max_episode_steps= out, or raise it."
            )
        check_pixels("image_size", image_size)
        check_pixels("render_size", render_size)
        self.craft: Craft = load_craft(craft)
        self._size_px, self._render_px = image_size, render_size
        self._texts = VARIANTS.encoded(wordings)
        given = {
            "craft": craft,
            "from_ball": f"{from_ball:g}",
            "hold_s": f"{hold_s:g}",
            "image_size": image_size,
            "wordings": wordings,
        }
        usual = {
            "craft": "cf2x_l2f",
            "from_ball": "0",
            "hold_s": f"{HOLD_STEPS / CONTROL_HZ:g}",
            "image_size": 64,
            "wordings": "training",
        }
        words = ",".join(f"{key}={value}" for key, value in given.items() if value != usual[key])
        self.spec = seek_spec(f"drone/{task}{':' if words else ''}{words}", steps, image_size)
        self._level = make_level("velocity", self.craft, LOOP_S, RANGES)
        self._step = make_step(self.craft, QuadPhysics(dt_s=LOOP_S, integrator="euler"))
        self._params = parameters(self.craft, LOOP_S)
        self._compiled = num_envs >= 64 if compiled is None else compiled
        self._place(torch.device("cpu"))

    def _place(self, device: torch.device) -> None:
        self.device, self._params = device, self._params.to(device)
        self._texts = self._texts.to(device)
        self._begin_all(torch.zeros(self.num_envs, dtype=torch.long, device=device))
        examples = (self._state, self._state.new_zeros(4, self.num_envs), self._params)
        self._flight = compile_kernel(self._fly, examples, eager=not self._compiled)

    @property
    def _max_steps(self) -> int:
        return self.spec.max_episode_steps

    def _first_step(self, seeds: Int64[Tensor, " k"]) -> dict[str, Tensor]:
        state, scene = begin(self.craft, seeds, self.from_ball)
        colour = colour_number(seeds)
        words = self._texts[colour, wording_number(seeds, self._texts.shape[1])].T
        none = torch.zeros_like(seeds)
        values: tuple[Tensor, ...] = (state, *scene, colour, words, seeds, none, none.clone())
        return dict(zip(self.saved, values, strict=True))

    def _advance(self, action: Float[Tensor, "4 n"]) -> Advanced:
        task = self._told_colour.clone()
        (self._state,) = self._flight(self._state, action, self._params)
        self._age = self._age + 1
        success, ended, self._held = score(self._state, self._balls, self._held, self.hold_steps)
        return Advanced(success.float(), ended, success, {"task": task})

    def _fly(
        self, state: Float[Tensor, "17 n"], action: Float[Tensor, "4 n"], params: Float[Tensor, "12 n"]
    ) -> tuple[Float[Tensor, "17 n"]]:
        """State after a control step."""
        outside = torch.zeros_like(state[:EXTERNAL_SIZE])
        for _ in range(LOOPS):
            state = self._step(state, self._level(state, from_heading_axes(state, action)), params, outside)
        return (state,)

    def _given(self) -> Obs:
        state, balls = self._state, self._balls
        up = heading_axes(state, rotation_matrix(state[QUAT])[2::3])
        velocity = heading_axes(state, state[VEL])
        seen = torch.cat([state[2:3], velocity, up[:2], state[RATE][2:3]])
        return {
            "state": seen.T.contiguous(),
            CAMERA: self._picture(state, self._size_px),
            INSTRUCTION: self._words.T.clone(memory_format=torch.contiguous_format),
            target_of(CAMERA): torch.stack(in_picture(state, balls[0]), dim=1),
            EXPERT_STATE: heading_axes(state, balls[0] - state[POS]).T.contiguous(),
        }

    def _picture(self, state: Float[Tensor, "17 n"], size_px: int) -> UInt8[Tensor, "n s s 3"]:
        return front_camera(state, self._balls, self._colours, self._light, RADIUS_M, size_px)

    def render(self, lane: int = 0) -> Tensor:
        """What the camera of a lane sees."""
        here = slice(lane, lane + 1)
        scene = self._balls[..., here], self._colours[..., here], self._light[:, here]
        return front_camera(self._state[:, here], *scene, RADIUS_M, self._render_px)[0]

    def close(self) -> None:
        """Nothing to close."""


def hold_steps(hold_s: float) -> int:
    """Control steps of this time. Raises ConfigError for less than a step, or more than ten minutes."""
    if (
        isinstance(hold_s, bool)
        or not isinstance(hold_s, int | float)
        or not 1 <= hold_s * CONTROL_HZ <= 12_000
    ):
        raise ConfigError(f"hold_s is {hold_s!r}; expected {1 / CONTROL_HZ:g} to 600 seconds.")
    return round(hold_s * CONTROL_HZ)


def share_from_ball(from_ball: float) -> float:
    """The share. Raises ConfigError for a number outside 0 to 1."""
    if isinstance(from_ball, bool) or not isinstance(from_ball, int | float) or not 0.0 <= from_ball <= 1.0:
        raise ConfigError(f"from_ball is {from_ball!r}; expected a share of the episodes, 0 to 1.")
    return float(from_ball)


def seek_spec(name: str, max_episode_steps: int, image_size: int) -> EnvSpec:
    """Contract of the environment."""
    return EnvSpec(
        name,
        {
            "state": ArraySpec((7,), "float32", "m height, m/s velocity, 1 upright, rad/s yaw rate"),
            CAMERA: ArraySpec((image_size, image_size, 3), "uint8"),
            INSTRUCTION: INSTRUCTION_SPEC,
            target_of(CAMERA): ArraySpec((2,), "float32", "x right, y down, edges at 1"),
            EXPERT_STATE: ArraySpec((3,), "float32", "m"),
        },
        ACTION,
        max_episode_steps,
        CONTROL_HZ,
    )
