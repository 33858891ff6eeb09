"""Interface and table of position controllers.

A controller is a pure function of tensors (component, drone) that follows a point with its velocity,
acceleration and yaw. Its memory is an argument and a result, so it compiles and is differentiable together
with the physics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import Table, lookup
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import Craft
from sim.flight.control.gains import ControllerGains

REF_POS, REF_VEL, REF_ACC, REF_YAW = slice(0, 3), slice(3, 6), slice(6, 9), 9
REFERENCE_SIZE = 10  # position [m], velocity [m/s], acceleration [m/s^2], all in the world; yaw [rad]

Law = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

CONTROLLERS: Table = {  # name -> (where it lives, extra that installs its dependencies)
    "pid": ("sim.flight.control.pid:make_pid", None),
    "geometric": ("sim.flight.control.geometric:make_geometric", None),
    "mellinger": ("sim.flight.control.mellinger:make_mellinger", None),
    "lqr": ("sim.flight.control.lqr:make_lqr", "train"),
}
OVER_A_LINK = ("pid", "geometric")  # controllers whose inner loop may be an autopilot's


@dataclass(frozen=True, slots=True)
class Controller:
    """controller(state, reference, memory) -> (command, memory), called once per `dt_s` that it was made for.

    state: (17, n) as in sim/engines/quad/layout.py. Its rotor speeds are used; where no sensor measures them,
    take them from a model, the first-order lag of the sent commands. command: (4, n) rotor speeds, 0 ... 1;
    at level=rates thrust [weights] and body rates [rad/s].
    """

    memory_size: int
    law: Law

    def __call__(
        self, state: Float[Tensor, "17 n"], reference: Float[Tensor, "10 n"], memory: Float[Tensor, "m n"]
    ) -> tuple[Float[Tensor, "4 n"], Float[Tensor, "m n"]]:
        return self.law(state, reference, memory)

    def blank(self, num: int, device: torch.device | str = "cpu") -> Float[Tensor, "m n"]:
        """Memory (m, n) at the start of a flight."""
        return torch.zeros(self.memory_size, num, device=device)


def make_controller(
    name: str, craft: Craft, dt_s: float, gains: ControllerGains | None = None, level: str = "motors"
) -> Controller:
    """A controller by name, tuned for this craft unless `gains` are given.

    level: "motors", or "rates" for commands to the craft's rate loop. Raises UnknownNameError, ConfigError
    for a controller without body rates.
    """
    maker: Callable[..., Controller] = lookup("controller", CONTROLLERS, name)
    if level == "motors":
        return maker(craft, dt_s, gains)
    if name not in OVER_A_LINK:
        raise ConfigError(
            f"The controller '{name}' commands motors only; for level=rates choose {', '.join(OVER_A_LINK)}."
        )
    return maker(craft, dt_s, gains, level)


def hold(position_m: Float[Tensor, "3 n"], yaw_rad: float | Tensor = 0.0) -> Float[Tensor, "10 n"]:
    """Reference at rest at a point [m, world], with one yaw or (n,) of them [rad]."""
    still = torch.zeros_like(position_m)
    return torch.cat([position_m, still, still, still[:1] + yaw_rad])
