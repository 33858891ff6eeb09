"""Pilots for the tests: a loop that reads and writes, and a controller in ENU and FLU."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from hardware.driver import QuadDriver
from hardware.states import BodyRates, QuadState, Setpoint
from robo_rl.core.flight.frames import rotation_of

HOVER = 0.5  # thrust that carries the craft of the tests


def fly(quad: QuadDriver, seconds: float, law: Callable[[QuadState], Setpoint]) -> QuadState:
    """Run the loop; returns the final state."""
    end_s, state = time.monotonic() + seconds, quad.read()
    while time.monotonic() < end_s:
        quad.write(law(state))
        time.sleep(0.01)
        state = quad.read()
    return state


def towards(goal_m: np.ndarray) -> Callable[[QuadState], Setpoint]:
    """Wanted acceleration -> wanted up -> body rates and thrust."""

    def law(state: QuadState) -> Setpoint:
        wish = 2.0 * (goal_m - state.position_m) - 2.5 * state.velocity_m_s
        force = np.clip(wish, -2.5, 2.5) + np.array([0.0, 0.0, 9.81])
        body = rotation_of(state.quat_wxyz).T @ (force / np.linalg.norm(force))
        return BodyRates(
            np.array([-8.0 * body[1], 8.0 * body[0], 0.0]), HOVER * float(np.linalg.norm(force)) / 9.81
        )

    return law
