"""Follow: track a planned path that arrives step by step, as on a robot.

Randomisation: position, attitude and velocity at the start of the path, a constant force and torque.
Observation, cost and reward are those of figure8 (sim/tasks/flight/tracking.py), so a policy that was trained
on random curves flies any path unchanged. Missions are scored by their formula (sim/tasks/stl), not by this
task.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, VEL
from sim.tasks.flight.hover import START_NUMBERS, HoverTask
from sim.tasks.flight.tracking import PREVIEW_S, TrackingTask
from sim.tasks.stl.plan import Plans

PATH_SIZE = 9 + 3 * len(PREVIEW_S)  # position, velocity, acceleration; later positions relative to this one
_NOW = slice(EXTERNAL_SIZE, EXTERNAL_SIZE + 9)


@dataclass(frozen=True, slots=True)
class FollowTask(TrackingTask):
    """Track the path whose current values follow the disturbance in `external`; `following` writes them."""

    start_m: float = 0.05
    start_tilt_rad: float = 0.2
    start_speed_m_s: float = 0.2

    @property
    def name(self) -> str:
        return "follow"

    @property
    def start_numbers(self) -> int:
        return START_NUMBERS

    def start(
        self, craft: Craft, uniform: Float[Tensor, "19 n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "27 n"]]:
        """Start states near the origin, where every path begins, and disturbances with an empty path."""
        state, external = HoverTask.start(self, craft, uniform)
        return state, torch.cat([external, uniform.new_zeros(PATH_SIZE, uniform.shape[1])])

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        now = external[_NOW]
        return torch.cat([state[POS] - now[0:3], state[3:7], state[VEL] - now[3:6], state[10:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        return seen, external[EXTERNAL_SIZE + 6 :]

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        now = external[_NOW]
        return torch.cat([now, torch.zeros_like(now[:1])])


def path_values(plans: Plans, steps: int, dt_s: float) -> Float[Tensor, "t 18 n"]:
    """Values of the path for `following` at each of t = steps + 1 times.

    Position [m], velocity [m/s] and acceleration [m/s^2], then the positions PREVIEW_S later relative to it
    [m].
    """
    times_s = torch.arange(steps + 1) * dt_s
    now = plans.at(times_s)
    ahead = [plans.at(times_s + later_s)[0] - now[0] for later_s in PREVIEW_S]
    return torch.cat([*now, *ahead], dim=1)
