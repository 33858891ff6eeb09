"""Velocity controller of a craft on the robot: that of training, with an autopilot as its rate loop."""

from __future__ import annotations

import numpy as np
import torch
from numpy import ndarray

from hardware.messages import Odometry
from hardware.nodes.velocity_policy import VelocityLoop
from robo_rl.core.flight.frames import rotation_of
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
        lane = lane_of(state)
        world = from_heading_axes(lane, torch.as_tensor(wanted, dtype=torch.float32)[:, None])
        thrust_n, rates = loop(lane, world)
        return np.array([float(thrust_n) / weight_n, *(float(rate) for rate in rates)])

    return follow


def lane_of(state: Odometry) -> Float[torch.Tensor, "17 1"]:
    """State of a message in the simulator's layout; rotor speeds, which the loop does not read, are 0."""
    lane = np.zeros(STATE_SIZE)
    lane[POS], lane[QUAT], lane[RATE] = state.position_m, state.quat_wxyz, state.rates_rad_s
    lane[VEL] = rotation_of(state.quat_wxyz) @ state.velocity_body_m_s
    return torch.from_numpy(lane).float()[:, None]
