"""Does a bundle fly? Asked before a driver connects, let alone before motors turn."""

from __future__ import annotations

from hardware.safety.flight import Level
from policies.bundle import Bundle
from robo_rl.core.envelope import FlightEnvelope
from robo_rl.core.errors import CheckpointError

MOTOR_UNIT = "motor command"  # how the unit of a policy that turns motors begins


def check_flight(bundle: Bundle, level: Level) -> None:
    """Raises CheckpointError for an arm's bundle, one without an envelope, or one of the other level of command."""
    check_craft(bundle)
    envelope_of(bundle)
    check_level(bundle, level)


def check_craft(bundle: Bundle) -> None:
    """Raises CheckpointError for a bundle that was not made for a quadcopter."""
    if not bundle.env.name.startswith("quad/"):
        raise CheckpointError(f"The bundle '{bundle.name}' was made for {bundle.env.name}, not for a quadcopter.")


def envelope_of(bundle: Bundle) -> FlightEnvelope:
    """Raises CheckpointError for a bundle without one: nothing flies without limits."""
    if bundle.envelope is None:
        raise CheckpointError(
            f"The bundle '{bundle.name}' carries no flight envelope, so nobody knows where it may fly. Train it by "
            "robo-rl fly, which measures one, and export it again."
        )
    return bundle.envelope


def check_level(bundle: Bundle, level: Level) -> None:
    """Raises CheckpointError when four rotor speeds would be read as thrust and body rates, or the other way round."""
    unit = bundle.env.action.unit
    turns_motors = unit.startswith(MOTOR_UNIT)
    if turns_motors and level == "rates":
        raise CheckpointError(
            f"The bundle '{bundle.name}' turns motors ('{unit}'), and level=rates would read its four numbers as "
            "thrust and body rates. Such a policy runs on board, as C (docs/flight.md); in simulation by level=motors."
        )
    if not turns_motors and level == "motors":
        raise CheckpointError(
            f"The bundle '{bundle.name}' commands '{unit or 'numbers without a unit'}', not motors: say level=rates if "
            "these are thrust and body rates."
        )
