"""One simulated craft as a robot: a node commands, steps and reads it, without episodes or a task."""

from __future__ import annotations

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, QUAT, RATE, ROTOR, VEL, parameters, start
from sim.flight.control.levels import make_level

_STEP_S = 0.005  # of semi-implicit Euler, which needs a quarter of the time of Runge-Kutta


class QuadBody:
    """A craft that starts at `place_m`, level and hovering. World frame ENU, body frame FLU.

    level: "motors", or "rates", where an autopilot's rate loop is between commands and rotors; its thrust
    command, 0 ... 1, hovers at `hover`.
    """

    def __init__(
        self, craft: Craft, place_m: tuple[float, float, float] = (0.0, 0.0, 0.0), level: str = "motors",
        hover: float = 0.5,
    ) -> None:  # fmt: skip
        self.craft, self._place = craft, place_m
        self._loop = None if level == "motors" else make_level("rates", craft, _STEP_S).physical
        self._full_n = craft.mass_kg * GRAVITY_M_S2 / hover
        self._step, self._params = (
            make_step(craft, QuadPhysics(dt_s=_STEP_S, integrator="euler")),
            parameters(craft, _STEP_S),
        )
        self._calm = torch.zeros(EXTERNAL_SIZE, 1)
        self.reset()

    def reset(self) -> None:
        """Return to the start, hovering."""
        self._state, self._left_s = start(1), 0.0
        self._state[POS, 0] = torch.tensor(self._place)
        self._state[ROTOR] = self.craft.hover_speed
        self._command = self._state[ROTOR].clone()
        if self._loop is not None:
            self._command = torch.tensor([[self.craft.mass_kg * GRAVITY_M_S2], [0.0], [0.0], [0.0]])

    @property
    def state(self) -> Float[Tensor, "17 1"]:
        """State in the layout of the engine."""
        return self._state

    def put(self, state: Float[Tensor, "17 1"]) -> None:
        """Go to this state, and hover until the next command."""
        self.reset()
        self._state = state.clone()

    def command(self, values: Float[ndarray, " 4"]) -> None:
        """Four motor commands in [-1, 1]; at level=rates thrust, 0 ... 1, and body rates [rad/s]."""
        if self._loop is not None:
            thrust_n = self._full_n * float(np.clip(values[0], 0.0, 1.0))
            self._command = torch.tensor([thrust_n, *values[1:].tolist()], dtype=torch.float32)[:, None]
            return
        self._command = torch.from_numpy(np.clip(0.5 * values + 0.5, 0.0, 1.0)).float()[:, None]

    @torch.no_grad()
    def advance(self, dt_s: float) -> None:
        """Simulate `dt_s`; a remainder of less than a step is added to the next call."""
        steps = int((self._left_s + dt_s) / _STEP_S + 1e-6)
        self._left_s += dt_s - steps * _STEP_S
        for _ in range(steps):
            rotors = self._command if self._loop is None else self._loop(self._state, self._command)
            self._state = self._step(self._state, rotors, self._params, self._calm)

    def read(self) -> tuple[ndarray, ndarray, ndarray, ndarray]:
        """Position [m], quaternion [wxyz, body -> world], velocity [m/s, world], rates [rad/s, body]."""
        state = self._state[:, 0].double().numpy()
        quat = state[QUAT] / np.linalg.norm(state[QUAT])
        return state[POS].copy(), quat, state[VEL].copy(), state[RATE].copy()
