"""System identification: stiffness, damping and delay with which the simulated arm moves as recorded.

    min over theta   || q_sim(theta; q_0, dq_0, commands) - q_recorded ||^2 / s^2  +  || theta / p ||^2

summed over segments and steps. theta: logarithms of factors on each servo's kp and kv, and, for servos with
motors (`sim.actuators`), of one factor on all lags and one on all no-load speeds; solved for every delay in
question. A joint that hardly moves does not identify its servo: the prior, p = 0.5 beside noise of s = 1
mrad, keeps it at the model's value. Predictions over many steps, not one: errors of one step are dominated by
the sensors, errors of a second by the model. Gauss-Newton with finite differences; all shifted parameters and
all segments are simulated at once as worlds of one engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy import ndarray
from scipy.optimize import least_squares
from torch import Tensor

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Bool, Float
from sim.arms.view import Wiring
from sim.engines.mujoco.engine import MujocoEngine
from sim.engines.scene import Scene

PRIOR, KNOWN = (
    0.5,
    0.25,
)  # prior standard deviation of a logarithm; below this it counts as identified
MOST_ROUNDS = 24  # simulations per delay, at most: of errors and of their slopes
_NOISE_RAD = 1e-3  # noise of encoders and model errors
_LEAD = 4  # steps of 50 ms: no servo lags for longer
_OF_MOTORS = ("lag", "no_load")  # motion shows play too rarely to fit it
_SHIFT, _BOUND = 0.02, 1.6  # of a logarithm: step of finite differences; bound (a factor of five)


@dataclass(frozen=True, slots=True)
class Segments:
    """s stretches of recorded motion, h steps each. Commands are the servos' position targets."""

    q_rad: Float[ndarray, "s ends j"]  # ends = h + 1: before the first step and after each
    dq_rad_s: Float[ndarray, "s j"]  # at the beginning
    command_rad: Float[
        ndarray, "s dh j"
    ]  # dh = d + h: d more before the beginning: what a delayed command was


@dataclass(frozen=True, slots=True)
class Fit:
    """Result. Standard deviations are of the factors' logarithms, by the curvature at the best fit; that of
    the prior where the motion is not informative.
    """

    kp: Float[ndarray, " j"]  # factors
    kv: Float[ndarray, " j"]
    kp_std: Float[ndarray, " j"]
    kv_std: Float[ndarray, " j"]
    delay: int  # steps
    rms_rad: float  # on the segments of the fit
    motors: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # "lag", "no_load": (factor, std)

    @property
    def theta(self) -> Float[ndarray, " t"]:
        shared = [factor for factor, _ in self.motors.values()]
        theta: Float[ndarray, " t"] = np.log(np.concatenate([self.kp, self.kv, shared]))
        return theta

    @property
    def found(self) -> Bool[ndarray, " j"]:
        """Joints whose servos the motion identifies."""
        found: Bool[ndarray, " j"] = np.maximum(self.kp_std, self.kv_std) < KNOWN
        return found


class ArmModel:
    """Simulated arm, driven by recorded commands from many starts under many parameters."""

    def __init__(self, wiring: Wiring, substeps: int) -> None:
        self._wiring, self._substeps = wiring, substeps
        self._engines: dict[int, MujocoEngine] = {}
        motors = wiring.scene.motors
        self.motors = tuple(name for name in _OF_MOTORS if motors is not None and motors.has(f"{name}_scale"))

    def errors(self, segments: Segments, theta: Float[ndarray, "p t"], delay: int) -> Float[ndarray, "p r"]:
        """Simulated minus recorded joint positions [rad] for each row of parameters; r = s h j.

        theta: of the stiffnesses (j), of the dampings (j), of those in `motors`.
        """
        p, (s, h1, j) = len(theta), segments.q_rad.shape
        engine = self._engine(p * s)
        worlds = torch.arange(p * s)
        factors = torch.from_numpy(np.repeat(np.exp(theta), s, 0))
        scales = {
            name: torch.ones(p * s, self._scene.model.nu, dtype=torch.float64)
            for name in ("kp_scale", "kv_scale")
        }
        scales["kp_scale"][:, self._wiring.servos] = factors[:, :j]
        scales["kv_scale"][:, self._wiring.servos] = factors[:, j : 2 * j]
        for i, name in enumerate(self.motors, 2 * j):
            scales[f"{name}_scale"] = factors[:, i, None].expand(-1, self._scene.model.nu)
        engine.randomise(worlds, scales)
        q, dq = (
            torch.from_numpy(np.tile(part, (p, 1))) for part in (segments.q_rad[:, 0], segments.dq_rad_s)
        )
        start = self._wiring.start(q, self._wiring.robot.open_m)
        qvel = q.new_zeros(p * s, self._scene.model.nv)
        qvel[:, self._wiring.arm_speed] = dq
        lead = segments.command_rad.shape[1] - (h1 - 1)
        ctrl, found = start.ctrl.clone(), np.empty((p, s, h1 - 1, j))
        if lead > delay:  # lagging servos have not arrived yet
            start.ctrl[:, self._wiring.servos] = self._reached(
                segments.command_rad[:, : lead - delay], factors, p
            )
        engine.set_state(worlds, start._replace(qvel=qvel))
        for t in range(h1 - 1):
            ctrl[:, self._wiring.servos] = torch.from_numpy(
                np.tile(segments.command_rad[:, lead + t - delay], (p, 1))
            )
            engine.step(ctrl, self._substeps)
            found[:, :, t] = engine.physics().qpos[:, self._wiring.arm].numpy().reshape(p, s, j)
        errors: Float[ndarray, "p r"] = (found - segments.q_rad[None, :, 1:]).reshape(p, -1)
        return errors

    def _reached(
        self, before_rad: Float[ndarray, "s d j"], factors: Float[Tensor, "ps t"], p: int
    ) -> Float[Tensor, "ps j"]:
        """Positions of lagging targets after these commands."""
        commands = torch.from_numpy(np.tile(before_rad, (p, 1, 1)))
        reached = commands[:, 0]
        if "lag" in self.motors and self._scene.motors is not None:
            own_s = commands.new_tensor(self._scene.motors.lag_s)[self._wiring.servos]
            lag_s = own_s * factors[:, 2 * commands.shape[2] + self.motors.index("lag"), None]
            kept = torch.exp(-self._substeps * self._scene.timestep_s / lag_s)
            for command in commands.unbind(1):
                reached = command + (reached - command) * kept
        return reached

    @property
    def lead(self) -> int:
        """Number of commands before a stretch that determine the lagging targets."""
        return _LEAD if "lag" in self.motors else 0

    @property
    def _scene(self) -> Scene:
        return self._wiring.scene

    def _engine(self, worlds: int) -> MujocoEngine:
        if worlds not in self._engines:
            self._engines[worlds] = MujocoEngine(self._scene, worlds, threads=0)
        return self._engines[worlds]


def fit(
    model: ArmModel, segments: Segments, delays: Sequence[int], advance: Callable[[], object] = lambda: None
) -> Fit:
    """Best parameters and delay. advance: called after every simulation, for a progress bar."""
    j = segments.q_rad.shape[2]
    size, weight = 2 * j + len(model.motors), _NOISE_RAD / PRIOR
    best: tuple[float, int, ndarray, ndarray] | None = None
    for delay in delays:

        def residual(theta: Float[ndarray, " t"], delay: int = delay) -> Float[ndarray, " r"]:
            advance()
            return np.concatenate([model.errors(segments, theta[None], delay)[0], weight * theta])

        def slope(theta: Float[ndarray, " t"], delay: int = delay) -> Float[ndarray, "r t"]:
            advance()
            shifts = _SHIFT * np.concatenate([np.eye(size), -np.eye(size)])
            up, down = np.split(model.errors(segments, theta + shifts, delay), 2)
            return np.concatenate([(up - down).T / (2.0 * _SHIFT), weight * np.eye(size)])

        found = least_squares(
            residual,
            np.zeros(size),
            jac=slope,
            bounds=(-_BOUND, _BOUND),
            x_scale=1.0,
            max_nfev=MOST_ROUNDS // 2,
            ftol=1e-4,
        )
        if best is None or found.cost < best[0]:
            best = (float(found.cost), delay, found.x, found.jac)
    assert best is not None
    _, delay, theta, jac = best
    motion = jac[:-size]
    left = model.errors(segments, theta[None], delay)[0]
    variance = max(float(left @ left) / max(1, len(left) - size), _NOISE_RAD**2)
    std = np.sqrt(np.diag(np.linalg.inv(motion.T @ motion / variance + np.eye(size) / PRIOR**2)))
    factors = np.exp(theta)
    shared = {name: (float(factors[i]), float(std[i])) for i, name in enumerate(model.motors, 2 * j)}
    return Fit(factors[:j], factors[j : 2 * j], std[:j], std[j : 2 * j], delay, rms(left), shared)


def cut(
    q_rad: Float[ndarray, "ends j"],
    dq_rad_s: Float[ndarray, "ends j"],
    command_rad: Float[ndarray, "t j"],
    steps: int,
    most_delay: int,
) -> Segments:
    """Stretches of `steps` from one episode, ends = t + 1, each with the commands before it.

    Raises DataError for an episode that is too short.
    """
    starts = range(most_delay, len(command_rad) - steps + 1, steps)
    if not starts:
        raise DataError(
            f"An episode of {len(command_rad)} steps is too short for stretches of {steps} with a delay of "
            f"up to {most_delay}. Record longer ones, or ask for less: steps=10."
        )
    return Segments(
        np.stack([q_rad[at : at + steps + 1] for at in starts]),
        np.stack([dq_rad_s[at] for at in starts]),
        np.stack([command_rad[at - most_delay : at + steps] for at in starts]),
    )


def join(parts: Sequence[Segments]) -> Segments:
    return Segments(
        np.concatenate([part.q_rad for part in parts]),
        np.concatenate([part.dq_rad_s for part in parts]),
        np.concatenate([part.command_rad for part in parts]),
    )


def rms(errors: Float[ndarray, " r"]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))
