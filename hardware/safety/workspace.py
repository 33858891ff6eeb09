"""The box in which an arm's elbow, wrist and tool must stay."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from hardware.description import Box, RobotDescription
from hardware.kinematics import Forward, forward_kinematics
from robo_rl.core.shapes import Float

# The filter keeps this distance from the walls: between the positions that it checks, joints that brake at
# different rates may come nearer to a wall.
MARGIN_M = 0.005


@dataclass(frozen=True, slots=True)
class Workspace:
    """forward(position_rad) -> (k, 3) points [m] that must stay in the box."""

    box: Box
    forward: Forward

    @classmethod
    def of(cls, robot: RobotDescription) -> Workspace | None:
        """Workspace of the description; None where it has none."""
        return None if robot.workspace is None else cls(robot.workspace, forward_kinematics(robot))

    def excess_m(self, position_rad: Float[ndarray, " j"], margin_m: float = 0.0) -> float:
        """Distance of the farthest point outside the box less a margin; 0 inside, inf without a solution."""
        points = self.forward(position_rad)
        low, high = np.asarray(self.box.low_m) + margin_m, np.asarray(self.box.high_m) - margin_m
        outside = float(np.maximum(np.maximum(low - points, points - high), 0.0).max())
        return outside if math.isfinite(outside) else math.inf

    def allows(
        self, step_rad: Float[ndarray, " j"], path_rad: Float[ndarray, "n j"], sent_rad: Float[ndarray, " j"]
    ) -> bool:
        """True if the arm may go to `step_rad`, and then brake along `path_rad`.

        sent_rad: position sent last. From outside the box the arm may only come nearer to it, all along the
        path.
        """
        after_m, sent_m = self._excess_m(step_rad), self._excess_m(sent_rad)
        if after_m > 0.0 and not after_m < sent_m:
            return False
        for place in path_rad:
            before_m, after_m = after_m, self._excess_m(place)
            if after_m > before_m:
                return False
        return True

    def _excess_m(self, position_rad: Float[ndarray, " j"]) -> float:
        return self.excess_m(position_rad, MARGIN_M)
