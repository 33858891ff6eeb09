"""Command levels: an action as rotor speeds, or as thrust and body rates.

    motors  rotor command = (a + 1) / 2, held for a control step
    rates   thrust [weights] and body rates [rad/s] from a, for the craft's rate loop in every substep

Thrust is in multiples of the weight, so that one policy flies with autopilots of different thrust units: each
is configured with the thrust that hovers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.flight.level import LEVELS, UNITS
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.engines.quad.craft import Craft, Four
from sim.engines.quad.dynamics import QuadPhysics
from sim.flight.control.levels import Ranges, make_level

# Runs of the rate loop per control step (200 Hz). With 4, policies are the same and compiling takes twice
# as long.
RATE_LOOPS = 2
MOST_RATE_RAD_S = 34.0
MOTORS = ActionSpec((-1.0,) * 4, (1.0,) * 4, UNITS["motors"])


@dataclass(frozen=True, slots=True)
class CommandLevel:
    """Command level, independent of the craft.

    rate_rad_s: at level=rates the largest rate of roll and pitch; that of yaw is half of it.
    """

    name: str = "motors"
    rate_rad_s: float = 6.0


ON_MOTORS = CommandLevel()


@dataclass(frozen=True, slots=True)
class Command:
    """A command level on a craft."""

    level: str
    spec: ActionSpec  # in the units of the contract
    hover: Four  # the action, in [-1, 1], that hovers
    rotors: Callable[
        [Tensor, Tensor], Tensor
    ]  # state (17, n), action (4, n) -> rotor commands (4, n), 0 ... 1

    @property
    def loops(self) -> bool:
        """True where `rotors` depends on the state, so that every substep calls it again."""
        return self.level != "motors"

    def normalized(self, values: Float[Tensor, "4 n"]) -> Float[Tensor, "4 n"]:
        """Output of a classical controller as an action in [-1, 1].

        values: rotor speeds, 0 ... 1, or thrust [weights] and body rates [rad/s], depending on the level.
        """
        if not self.loops:
            return 2.0 * values - 1.0
        return self.spec.normalize(values.T).T.clamp(-1.0, 1.0)


def motors_hover(craft: Craft) -> Four:
    """The action that hovers at level=motors."""
    value = 2.0 * craft.hover_speed - 1.0
    return value, value, value, value


def make_command(level: CommandLevel, craft: Craft, loop_s: float) -> Command:
    """A command level on a craft whose rate loop has the period `loop_s`.

    Raises UnknownNameError for an unknown level, ConfigError for a rate out of range.
    """
    if level.name not in LEVELS:
        raise UnknownNameError("level of command", level.name, LEVELS)
    if level.name == "motors":
        return Command(level.name, MOTORS, motors_hover(craft), lambda state, action: 0.5 * action + 0.5)
    if not 0.0 < level.rate_rad_s <= MOST_RATE_RAD_S:
        raise ConfigError(
            f"rate_rad_s = {level.rate_rad_s:g} is out of range: expected above 0 and at most "
            f"{MOST_RATE_RAD_S:g} rad/s, the full scale of common gyros."
        )
    ranges = Ranges(rate_rad_s=level.rate_rad_s, yaw_rate_rad_s=0.5 * level.rate_rad_s)
    inner, most = make_level("rates", craft, loop_s, ranges), craft.thrust_to_weight
    low, high = inner.spec.low[1:], inner.spec.high[1:]
    spec = ActionSpec((0.0, *low), (most, *high), UNITS["rates"])
    return Command(level.name, spec, (2.0 / most - 1.0, 0.0, 0.0, 0.0), inner)


def level_physics(level: CommandLevel, dt_s: float) -> QuadPhysics:
    """Default physics of a level: a rate loop needs substeps, which are accurate with Euler's method."""
    return (
        QuadPhysics(dt_s=dt_s)
        if level.name == "motors"
        else QuadPhysics(dt_s=dt_s, integrator="euler", substeps=RATE_LOOPS)
    )


def column(hover: Four, like: Tensor) -> Float[Tensor, "4 1"]:
    """The four numbers as a tensor that broadcasts over drones, on the device of `like`."""
    return like.new_tensor(hover).unsqueeze(1)
