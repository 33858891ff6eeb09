"""The quadcopter's filter around the project's own flight dynamics, and states for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from hardware.messages import FlightCommand, Odometry
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import CraftModel, MotorsLander
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.flight.frames import rotation_of
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import POS, QUAT, RATE, ROTOR, VEL, parameters

DT_S = 0.01
ENVELOPE = FlightEnvelope(0.6, 8.0, 2.0, (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
LEVEL, STILL = np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3)


def model(craft: Craft) -> CraftModel:
    return CraftModel(
        craft.mass_kg,
        craft.inertia_kg_m2,
        craft.rotors_m,
        craft.yaw_sign,
        craft.thrust_n,
        craft.torque_per_thrust_m,
        craft.rise_s,
        craft.fall_s,
    )


def odometry(
    position: Any = (0.0, 0.0, 0.0), quat: Any = LEVEL, velocity: Any = STILL, rates: Any = STILL
) -> Odometry:
    arrays = (np.asarray(part, dtype=np.float64) for part in (position, quat, velocity, rates))
    return Odometry(0.0, *arrays)


def lean(angle: float) -> Any:
    return np.array([math.cos(angle / 2), math.sin(angle / 2), 0.0, 0.0])


CRAFT = model(load_craft("cf2x_l2f"))


class Flight:
    """A craft in the air, with the filter between it and a sender of commands."""

    def __init__(self, craft: str = "cf2x_l2f", **start: Any) -> None:
        self.craft = load_craft(craft)
        self.lander = MotorsLander(model(self.craft), DT_S)
        self.filter = FlightFilter(ENVELOPE, self.lander, 1 / DT_S, 1 / DT_S)
        self.step, self.params = make_step(self.craft, QuadPhysics(dt_s=DT_S)), parameters(self.craft, DT_S)
        self.state = torch.zeros(17, 1)
        self.state[3] = 1.0
        self.state[ROTOR] = torch.tensor(self.lander.hover, dtype=torch.float32)[:, None]
        for part, value in start.items():
            rows = {"position": POS, "quat": QUAT, "velocity": VEL, "rates": RATE}[part]
            self.state[rows] = torch.tensor(np.asarray(value), dtype=torch.float32)[:, None]
        self.now_s, self.heard, self.sequence = 0.0, True, 0
        self.lowest_speed_m_s, self.widest_tilt_rad = 0.0, 0.0

    def odometry(self) -> Odometry:
        rows = self.state[:, 0].double().numpy()
        quat = rows[QUAT] / np.linalg.norm(rows[QUAT])
        return odometry(rows[POS], quat, rotation_of(quat).T @ rows[VEL], rows[RATE])

    def hear(self) -> None:
        if self.heard:
            self.filter.on_state(self.odometry(), self.now_s)

    def fly(self, command: Any = None) -> Any:
        """One period; without a new command the craft keeps its last one."""
        self.now_s += DT_S
        self.hear()
        if command is not None:
            self.tell(command)
        out = self.filter.tick(self.now_s)
        if out is not None:
            speeds = torch.tensor(0.5 * out + 0.5, dtype=torch.float32)[:, None]
            self.state = self.step(self.state, speeds, self.params, torch.zeros(9, 1))
        return out

    def tell(self, command: Any) -> bool:
        """Send the next command of a sender."""
        self.sequence += 1
        return self.filter.on_command(FlightCommand(float(self.sequence), np.asarray(command)), self.now_s)

    def hover(self) -> Any:
        return 2.0 * self.lander.hover - 1.0

    def begin(self) -> None:
        self.hear()
        assert self.filter.arm(self.now_s)[0]
        self.fly(self.hover())
