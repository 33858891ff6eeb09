"""Insert the peg that the arm holds into the hole of a block: the task that `robo-rl record robot=sim_arm`
records, as an environment.

Observation `state` (6,): joint positions [rad]; with velocities (12,), followed by joint velocities [rad/s].
The block is seen in pictures only. Success: the tip is `deep_m` below the block's top, inside the hole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.arms.arm6.body import JOINTS
from sim.arms.arm6.peg_cell import HEIGHT_M, depth_m

SPEED_RAD_S = (2.0, 2.0, 2.0, 3.0, 3.0, 3.0)  # at most, of a command; as in hardware/robots/sim_arm.yaml
BLOCK = "privileged.block"


@dataclass(frozen=True, slots=True)
class PegTask:
    """Reward and success of the state after a step."""

    deep_m: float = 0.05

    def success(self, tip_m: Float[ndarray, " 3"], block_m: Float[ndarray, " 2"]) -> bool:
        return depth_m(tip_m, block_m) >= self.deep_m

    def reward(self, tip_m: Float[ndarray, " 3"], block_m: Float[ndarray, " 2"], dense: bool) -> float:
        """Sparse: 1 with success. Dense: minus the distance [m] from the tip to the hole's axis, and minus
        its height [m] above the depth of success.
        """
        if not dense:
            return float(self.success(tip_m, block_m))
        above_m = max(0.0, float(tip_m[2]) - HEIGHT_M + self.deep_m)
        return -float(np.linalg.norm(tip_m[:2] - block_m)) - above_m


def peg_spec(
    name: str,
    low_rad: Float[ndarray, " 6"],
    high_rad: Float[ndarray, " 6"],
    *,
    cameras: tuple[str, ...],
    image_size: int,
    velocities: bool,
    control_hz: float,
    max_episode_steps: int,
) -> EnvSpec:
    """Contract of the environment: that of the recordings, and the block's place for scripted experts."""
    named = ", ".join(JOINTS)
    unit = f"rad: {named}; rad/s: {named}" if velocities else f"rad: {named}"
    obs = {f"image.{camera}": ArraySpec((image_size, image_size, 3), "uint8") for camera in cameras}
    obs["state"] = ArraySpec((len(JOINTS) * (1 + velocities),), "float32", unit)
    obs[BLOCK] = ArraySpec((2,), "float32", "m: x, y")
    action = ActionSpec(tuple(low_rad.tolist()), tuple(high_rad.tolist()), f"rad: {named}")
    return EnvSpec(name, obs, action, max_episode_steps, control_hz)
