"""A simulated arm, the safety filter's node and a sender of commands, in virtual time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hardware.bus.in_process import InProcessWorld
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.topics import RAW, SAFE
from tests.hardware.arm_descriptions import arm, command
from tests.hardware.nodes.fakes import LagArm


class Cell:
    """Simulated arm, filter, and a policy that moves all joints as a sine of 0.2 rad and 4 s."""

    def __init__(self, armed: bool = True) -> None:
        self.world, self.arm = InProcessWorld(), LagArm()
        self.robot_bus, self.filter_bus, self.policy_bus = (
            self.world.bus(n) for n in ("robot", "filter", "policy")
        )
        self.robot = SimArmNode(self.robot_bus, self.arm, 50.0, arm())
        self.node = SafetyFilterNode(self.filter_bus, arm(), arm=armed)
        self.say = RAW.publisher(self.policy_bus)
        self.sequence = 0
        self.policy_bus.timer(0.02, self.speak)
        self.safe: list[tuple[float, Any]] = []
        SAFE.subscribe(self.world.bus("probe"), lambda m, at: self.safe.append((at, m.position_rad[0])))

    def speak(self) -> None:
        now_s = self.policy_bus.now()
        self.say(command(np.full(3, 0.1 - 0.1 * math.cos(0.5 * math.pi * now_s)), self.sequence))
        self.sequence += 1

    def until(self, seconds: float) -> None:
        self.filter_bus.spin(lambda: self.world.now() >= seconds)

    def silence_after(self, kill_s: float) -> float:
        """Seconds from the kill to the first command that no longer follows the sine."""
        for at, place in self.safe:
            sine = 0.1 - 0.1 * math.cos(0.5 * math.pi * at)
            if at > kill_s and abs(place[0] - sine) > 1e-4:
                return at - kill_s
        return math.inf
