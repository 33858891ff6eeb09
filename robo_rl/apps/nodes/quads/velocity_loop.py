"""Velocity controller of a craft on the robot: that of training, with an autopilot as its rate loop."""

from __future__ import annotations

import numpy as np
import torch
from numpy import ndarray

from hardware.loop.flight_observation import vehicle_state
from hardware.messages import Odometry
from hardware.nodes.velocity_policy import VelocityLoop
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import POS, QUAT, RATE, STATE_SIZE, VEL
from sim.flight.control.gains import gains_for
from sim.flight.control.levels import make_velocity_loop
from sim.flight.seek.task import from_heading_axes
from sim.flight.seek.vec_env import LOOP_S


def make_robot_loop(craft: Craft) -> VelocityLoop:
    """The controller, tuned for this craft as in `drone/seek`."""
    loop, weight_n = make_velocity_loop(craft, gains_for(craft, LOOP_S)), craft.mass_kg * GRAVITY_M_S2

    @torch.no_grad()
    def follow(state: Odometry, wanted: Float[ndarray, " 4"]) -> Float[ndarray, " 4"]:
        now = engine_state(state)
        world = from_heading_axes(now, torch.as_tensor(wanted, dtype=torch.float32)[:, None])
        thrust_n, rates = loop(now, world)
        return np.array([float(thrust_n) / weight_n, *(float(rate) for rate in rates)])

    return follow


def engine_state(message: Odometry) -> Float[torch.Tensor, "17 1"]:
    """State of a message in the simulator's layout; rotor speeds, which the loop does not read, are 0."""
    seen, state = vehicle_state(message), np.zeros(STATE_SIZE)
    state[POS], state[QUAT] = seen.position_m, seen.quat_wxyz
    state[VEL], state[RATE] = seen.velocity_m_s, seen.rates_rad_s
    return torch.from_numpy(state).float()[:, None]
