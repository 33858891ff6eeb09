"""What task files share: uniform numbers within bounds, and commands of scripted experts toward a goal."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sim.arms.control import Reach
from sim.bodies.scene_view import ToolAmongThings

# Fraction of the remaining way that an expert commands per step. The arm lags its command by a step, and may
# receive it a step late: with twice this gain an expert circles around its goal and never comes to rest.
GAIN = 0.3


def between(uniform: Float[Tensor, " *k"], low: float, high: float) -> Float[Tensor, " *k"]:
    return low + (high - low) * uniform


def toward(goal_m: Float[Tensor, "n 3"], view: ToolAmongThings, reach: Reach) -> Float[Tensor, "n 3"]:
    """The action that brings the tool there, slower as it comes near."""
    return (GAIN * (goal_m - view.tool.m) / reach.step_m).clamp(-1.0, 1.0)


def turning(left_rad: Float[Tensor, " *n"], reach: Reach) -> Float[Tensor, " *n"]:
    """The action that turns the tool by what is left, slower as it comes near."""
    return (GAIN * left_rad / reach.step_rad).clamp(-1.0, 1.0)
