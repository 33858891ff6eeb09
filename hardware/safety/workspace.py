"""The box in which an arm's elbow, wrist and tool must stay."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.description import Box, RobotDescription
from hardware.kinematics import Forward, forward_kinematics


@dataclass(frozen=True, slots=True)
class Workspace:
    """forward(position_rad) -> (k, 3) points [m] that must stay in the box."""

    box: Box
    forward: Forward

    @classmethod
    def of(cls, robot: RobotDescription) -> Workspace | None:
        """Workspace of the description; None where it has none."""
        return None if robot.workspace is None else cls(robot.workspace, forward_kinematics(robot))

    def excess_m(self, position_rad: Float[ndarray, " j"]) -> float:
        """Distance of the worst point outside the box; 0 inside, infinite where the kinematics have no
        solution.
        """
        points = self.forward(position_rad)
        low, high = np.asarray(self.box.low_m), np.asarray(self.box.high_m)
        outside = float(np.maximum(np.maximum(low - points, points - high), 0.0).max())
        return outside if math.isfinite(outside) else math.inf

    def allows(self, step_rad: Float[ndarray, " j"], rest_rad: Float[ndarray, " j"], sent_m: float) -> bool:
        """True if the arm may go to `step_rad`, after which braking ends at `rest_rad`.

        sent_m: excess of the position sent last. From outside the box the arm may only come nearer to it.
        """
        after_m = self.excess_m(step_rad)
        if after_m == 0.0:
            return self.excess_m(rest_rad) == 0.0
        return after_m < sent_m and self.excess_m(rest_rad) <= after_m
