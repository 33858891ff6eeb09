"""What every position controller looks like from outside, and the table of those there are.

A controller is a pure function of rows (row = component, column = drone): it follows a point with its
velocity, acceleration and yaw, and what it remembers goes in and comes out, so that it compiles, and has a
gradient, together with the physics that it flies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import Table, lookup
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
OVER_A_LINK = ("pid", "geometric")  # whose inner loop may be an autopilot's


@dataclass(frozen=True, slots=True)
class Controller:
    """controller(state, reference, memory) -> (command, memory), to be called every `dt_s` that it was made
    for.

    state: (17, n) as in sim/engines/quad/layout.py. The rotor speeds in it are used; where no sensor gives
    them, fill them from a model of the rotors, the first-order lag of the commands that were sent. command:
    (4, n) rotor speeds, 0 ... 1; at level=rates thrust [weights] and body rates [rad/s].
    """

    memory_size: int
    law: Law

    def __call__(
        self, state: Float[Tensor, "17 n"], reference: Float[Tensor, "10 n"], memory: Float[Tensor, "m n"]
    ) -> tuple[Float[Tensor, "4 n"], Float[Tensor, "m n"]]:
        return self.law(state, reference, memory)

    def blank(self, num: int, device: torch.device | str = "cpu") -> Float[Tensor, "m n"]:
        """Memory of a controller that has flown nothing yet."""
        return torch.zeros(self.memory_size, num, device=device)


def make_controller(
    name: str, craft: Craft, dt_s: float, gains: ControllerGains | None = None, level: str = "motors"
) -> Controller:
    """A controller by name, tuned for this craft unless `gains` are given.

    level: "motors", or "rates" for what the craft's own rate loop follows. Raises UnknownNameError,
    ConfigError for a controller whose law has no body rates in it.
    """
    maker: Callable[..., Controller] = lookup("controller", CONTROLLERS, name)
    if level == "motors":
        return maker(craft, dt_s, gains)
    if name not in OVER_A_LINK:
        raise ConfigError(f"The controller '{name}' turns motors; level=rates has {', '.join(OVER_A_LINK)}.")
    return maker(craft, dt_s, gains, level)


def hold(position_m: Float[Tensor, "3 n"], yaw_rad: float | Tensor = 0.0) -> Float[Tensor, "10 n"]:
    """The reference of a point to stay at, with one yaw or (n,) of them."""
    still = torch.zeros_like(position_m)
    return torch.cat([position_m, still, still, still[:1] + yaw_rad])
