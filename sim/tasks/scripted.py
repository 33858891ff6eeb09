"""Helpers of task files: uniform numbers within bounds, and actions of scripted experts towards a goal."""

from __future__ import annotations

from torch import Tensor

from robo_rl.core.shapes import Float
from sim.arms.control import Reach
from sim.bodies.scene_view import ToolAndObjects

# Fraction of the remaining distance that an expert commands per step. The arm follows its command one step
# later, or two with delay: with twice this gain an expert circles around its goal and never comes to rest.
GAIN = 0.3


def between(uniform: Float[Tensor, " *k"], low: float, high: float) -> Float[Tensor, " *k"]:
    """Numbers in (low, high) from uniform numbers in (0, 1)."""
    return low + (high - low) * uniform


def toward(goal_m: Float[Tensor, "n 3"], view: ToolAndObjects, reach: Reach) -> Float[Tensor, "n 3"]:
    """Action in [-1, 1] that moves the tool to the goal, in proportion to the distance near it."""
    return (GAIN * (goal_m - view.tool.m) / reach.step_m).clamp(-1.0, 1.0)


def turning(left_rad: Float[Tensor, " *n"], reach: Reach) -> Float[Tensor, " *n"]:
    """Action in [-1, 1] that turns the tool by the angle left, in proportion to it when it is small."""
    return (GAIN * left_rad / reach.step_rad).clamp(-1.0, 1.0)
