"""Move an arm's tool to a point and stay there: reset, observation, reward and success, for any engine and
arm.

Observation `state` (15,): joint positions [rad] (6), velocities [rad/s] (6), the goal [m, base frame] (3).
Success: the tool stays within `radius_m` of the goal for `hold_steps` steps in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec

TASKS = ("reach",)
CONTROL_HZ = 50.0


@dataclass(frozen=True, slots=True)
class Arm6ReachTask:
    """Reach task. Starts and goals lie around `home_rad`, within `spread_rad`; a goal turns the first three
    joints only.
    """

    home_rad: tuple[float, ...]
    spread_rad: tuple[float, ...] = (0.6, 0.3, 0.3, 0.1, 0.1, 0.1)
    lead_rad: float = 0.4  # margin of actions beyond the range of starts and goals
    radius_m: float = 0.03
    hold_steps: int = 10
    max_steps: int = 150

    def start_rad(self, unit: Float[ndarray, " 6"]) -> Float[ndarray, " 6"]:
        """Start of an episode. unit: uniform in [-1, 1]."""
        start: Float[ndarray, " 6"] = np.array(self.home_rad) + np.array(self.spread_rad) * unit
        return start

    def action_limits(
        self, low_rad: Float[ndarray, " j"], high_rad: Float[ndarray, " j"]
    ) -> tuple[Float[ndarray, " j"], Float[ndarray, " j"]]:
        """Part of the joint ranges that the task needs: actions in [-1, 1] are then finer."""
        reach = np.array(self.spread_rad) + self.lead_rad
        return np.maximum(low_rad, self.home_rad - reach), np.minimum(high_rad, self.home_rad + reach)

    def goal_rad(self, unit: Float[ndarray, " 3"]) -> Float[ndarray, " 6"]:
        """Joint positions with the tool at the goal: every goal can be reached."""
        goal = np.array(self.home_rad)
        goal[:3] += np.array(self.spread_rad[:3]) * unit
        return goal

    def state(
        self,
        position_rad: Float[ndarray, " 6"],
        velocity_rad_s: Float[ndarray, " 6"],
        goal_m: Float[ndarray, " 3"],
    ) -> Float[ndarray, " 15"]:
        return np.concatenate([position_rad, velocity_rad_s, goal_m]).astype(np.float32)

    def is_there(self, tool_m: Float[ndarray, " 3"], goal_m: Float[ndarray, " 3"]) -> bool:
        return float(np.linalg.norm(tool_m - goal_m)) <= self.radius_m

    def reward(self, tool_m: Float[ndarray, " 3"], goal_m: Float[ndarray, " 3"], dense: bool) -> float:
        """Reward of a step. Sparse: 1 with the tool at the goal. Dense: minus the distance in metres."""
        return -float(np.linalg.norm(tool_m - goal_m)) if dense else float(self.is_there(tool_m, goal_m))


def reach_spec(
    task: Arm6ReachTask,
    joints: tuple[str, ...],
    low_rad: Float[ndarray, " j"],
    high_rad: Float[ndarray, " j"],
) -> EnvSpec:
    """Contract of the environment. Units name joints, which `robo-rl contract` compares with a robot's."""
    named = ", ".join(joints)
    unit = f"rad: {named}; rad/s: {named}; m: goal_x, goal_y, goal_z"
    low, high = (tuple(limit.tolist()) for limit in task.action_limits(low_rad, high_rad))
    state = ArraySpec((2 * len(joints) + 3,), unit=unit)
    return EnvSpec(
        "arm6/reach", {"state": state}, ActionSpec(low, high, f"rad: {named}"), task.max_steps, CONTROL_HZ
    )
