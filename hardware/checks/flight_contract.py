"""Does a bundle fly, and over this link? Asked before a driver connects, let alone before motors turn."""

from __future__ import annotations

from collections.abc import Iterator

from hardware.quads.link import QuadLink
from hardware.safety.flight_limits import Level
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.flight.level import UNITS

TASK = "quad/hover"  # the task that a node can show: where the goal is, and nothing else
_SLACK = 1e-3


def check_flight(bundle: Bundle, level: Level) -> None:
    """Raises CheckpointError for an arm's bundle, one without an envelope, or one of the other level of
    command.
    """
    check_craft(bundle)
    envelope_of(bundle)
    check_level(bundle, level)


def check_craft(bundle: Bundle) -> None:
    """Raises CheckpointError for a bundle that was not made for a quadcopter."""
    if not bundle.env.name.startswith("quad/"):
        raise CheckpointError(
            f"The bundle '{bundle.name}' was made for {bundle.env.name}, not for a quadcopter."
        )


def envelope_of(bundle: Bundle) -> FlightEnvelope:
    """Raises CheckpointError for a bundle without one: nothing flies without limits."""
    if bundle.envelope is None:
        raise CheckpointError(
            f"The bundle '{bundle.name}' carries no flight envelope: none of its measured flights succeeded, "
            "or none was measured. Train it for longer by robo-rl fly, which measures flights and writes the "
            "envelope of those that succeed."
        )
    return bundle.envelope


def check_level(bundle: Bundle, level: Level) -> None:
    """Raises CheckpointError when four rotor speeds would be read as thrust and body rates, or the other way
    round.
    """
    unit, turns_motors = bundle.env.action.unit, level_of(bundle) == "motors"
    if turns_motors and level == "rates":
        raise CheckpointError(
            f"The bundle '{bundle.name}' turns motors ('{unit}'), and level=rates would read its four "
            "numbers as thrust and body rates. Such a policy runs on board, as C (docs/flight.md); in "
            "simulation by level=motors. robo-rl fly level=rates trains one that flies over a link."
        )
    if not turns_motors and level == "motors":
        raise CheckpointError(f"The bundle '{bundle.name}' commands '{unit}', not motors: say level=rates.")


def level_of(bundle: Bundle) -> Level:
    """By the unit of its actions. Raises CheckpointError for numbers that are neither."""
    unit = bundle.env.action.unit
    if unit == UNITS["motors"]:
        return "motors"
    if unit == UNITS["rates"]:
        return "rates"
    raise CheckpointError(
        f"The bundle '{bundle.name}' commands '{unit or 'numbers without a unit'}', expected "
        f"'{UNITS['motors']}' or '{UNITS['rates']}'."
    )


def check_link(bundle: Bundle, link: QuadLink) -> None:
    """Raises CheckpointError with all that keeps this bundle from flying a craft behind this link."""
    check_craft(bundle)
    if found := list(link_mismatches(bundle, link)):
        raise CheckpointError(f"The bundle '{bundle.name}' does not fit a {link.name}: {' '.join(found)}")


def link_mismatches(bundle: Bundle, link: QuadLink) -> Iterator[str]:
    """One sentence each: level, bounds, rates, what it is shown, envelope."""
    env = bundle.env
    if level_of(bundle) == "motors":
        yield "It turns motors, which no link carries: train by robo-rl fly level=rates, or fly it on board as C."
    elif (most := max(env.action.high[1:])) > link.rate_rad_s * (1.0 + _SLACK):
        yield (
            f"It asks for up to {most:g} rad/s, and the driver lets {link.rate_rad_s:g} through: train with "
            f"rate_rad_s={link.rate_rad_s:g}, or set the driver's max_rate_rad_s."
        )
    if env.control_hz > link.command_hz * (1.0 + _SLACK):
        yield f"It acts at {env.control_hz:g} Hz, the link carries commands at {link.command_hz:g} Hz."
    if float(bundle.manifest["rates_hz"].get("state", 0.0)) > link.state_hz * (1.0 + _SLACK):
        yield f"It is shown states at more than {link.state_hz:g} Hz, which is what the link carries."
    if env.name.partition(":")[0] != TASK:
        yield f"It was trained for {env.name}, and a node shows what {TASK} does: the state from a goal that stays."
    if bundle.envelope is None:
        yield "It carries no flight envelope: none of its measured flights held, so train it for longer."
