"""Check that a bundle can fly, and that it fits a link to a quadcopter, before a driver connects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hardware.quads.link import QuadLink
from hardware.safety.flight_limits import Level
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError
from robo_rl.core.flight.envelope import CraftLimits, FlightEnvelope
from robo_rl.core.flight.level import UNITS

# Tasks whose observations the policy nodes of a quadcopter build.
TASKS = ("quad/hover", "drone/seek")
CRAFTS = ("quad/", "drone/")  # environments of quadcopters
GROUND_M = 0.05  # largest difference of the ground from 0 for bundles that observe their height
_SLACK = 1e-3


def check_flight(bundle: Bundle, level: Level) -> None:
    """Raise CheckpointError unless the bundle flies a quadcopter at this level and has a flight envelope."""
    check_craft(bundle)
    envelope_of(bundle)
    check_level(bundle, level)


def check_craft(bundle: Bundle) -> None:
    """Raise CheckpointError for a bundle that was not made for a quadcopter."""
    if bundle.env.name.startswith("pybullet/"):
        raise CheckpointError(
            f"The bundle {bundle.folder} flies by a camera that looks down, which no node shows it. "
            f"robo-rl run bundle={bundle.folder} flies it in simulation."
        )
    if not bundle.env.name.startswith(CRAFTS):
        raise CheckpointError(
            f"The bundle {bundle.folder} was made for {bundle.env.name}, not for a quadcopter."
        )


def allowed_envelope(bundle: Bundle, limits: CraftLimits, say: Callable[[str], None]) -> FlightEnvelope:
    """The bundle's envelope within the craft's own limits; says what they cut off.

    Raises CheckpointError for a bundle without an envelope, ConfigError where the limits leave nothing of it.
    """
    envelope = envelope_of(bundle)
    allowed = envelope.within(limits)
    both = ((name, getattr(envelope, name), getattr(allowed, name)) for name in envelope.to_json())
    if cut := [f"{name} {value} to {kept}" for name, value, kept in both if value != kept]:
        say(f"The craft's limits cut the envelope of {bundle.folder}: {', '.join(cut)}.")
    return allowed


def envelope_of(bundle: Bundle) -> FlightEnvelope:
    """The flight envelope of a bundle. Raises CheckpointError for a bundle without one."""
    if bundle.envelope is None and commands_velocity(bundle):
        raise CheckpointError(
            f"The bundle {bundle.folder} carries no flight envelope: it was exported by an earlier version. "
            "Export its policy again."
        )
    if bundle.envelope is None:
        raise CheckpointError(
            f"The bundle {bundle.folder} carries no flight envelope: none of its measured flights succeeded, "
            "or none was measured. Train it for longer by robo-rl fly, which measures flights and writes the "
            "envelope of those that succeed."
        )
    return bundle.envelope


def check_level(bundle: Bundle, level: Level) -> None:
    """Raise CheckpointError unless the actions of the bundle are commands of this level."""
    unit, is_motors = bundle.env.action.unit, level_of(bundle) == "motors"
    if is_motors and level == "rates":
        raise CheckpointError(
            f"The bundle {bundle.folder} commands motors ('{unit}'), but level=rates expects thrust and body "
            "rates. Run it on board as C (docs/flight.md), or in simulation with level=motors. For a policy "
            "that flies over a link, train with robo-rl fly level=rates."
        )
    if commands_velocity(bundle) and level == "motors":
        raise CheckpointError(
            f"The bundle {bundle.folder} commands velocities, which its node turns into thrust and body "
            "rates. Set level=rates."
        )
    if not is_motors and level == "motors":
        raise CheckpointError(f"The bundle {bundle.folder} commands '{unit}', not motors. Set level=rates.")


def check_ground(bundle: Bundle, ground_m: float | None) -> None:
    """Raise CheckpointError for a ground at another height than in training, which the bundle's heights count
    from; bundles that hover observe no height.
    """
    if commands_velocity(bundle) and ground_m is not None and abs(ground_m) > GROUND_M:
        raise CheckpointError(
            f"The bundle {bundle.folder} observes its height above the ground, which is at 0 in training, "
            f"and ground is {ground_m:g}. Give ground=0."
        )


def level_of(bundle: Bundle) -> Level:
    """Level at which the bundle reaches the flight filter, from the unit of its actions: velocities are
    turned into rates before.

    Raises CheckpointError for other units.
    """
    unit = bundle.env.action.unit
    if unit == UNITS["motors"]:
        return "motors"
    if unit == UNITS["rates"] or commands_velocity(bundle):
        return "rates"
    expected = " or ".join(f"'{known}'" for known in UNITS.values())
    raise CheckpointError(
        f"The bundle {bundle.folder} commands '{unit or 'numbers without a unit'}'; expected {expected}."
    )


def commands_velocity(bundle: Bundle) -> bool:
    """True for a bundle whose actions are velocities in level axes and a yaw rate."""
    return bundle.env.action.unit == UNITS["velocity"]


def check_link(bundle: Bundle, link: QuadLink) -> None:
    """Raise CheckpointError that lists all mismatches between a bundle and a link."""
    check_craft(bundle)
    if found := list(link_mismatches(bundle, link)):
        raise CheckpointError(f"The bundle {bundle.folder} does not fit a {link.name}: {' '.join(found)}")


def link_mismatches(bundle: Bundle, link: QuadLink) -> Iterator[str]:
    """One sentence per mismatch: level, limits, rates, task, envelope."""
    env, most = bundle.env, max(bundle.env.action.high[1:])
    if level_of(bundle) == "motors":
        yield (
            "It commands motors, which cannot be done over a link: train with robo-rl fly level=rates, or "
            "run it on board as C."
        )
    elif not commands_velocity(bundle) and most > link.rate_rad_s * (1.0 + _SLACK):
        yield (
            f"It commands up to {most:g} rad/s, but the driver limits rates to {link.rate_rad_s:g} rad/s: "
            f"train with rate_rad_s={link.rate_rad_s:g}, or set the driver's max_rate_rad_s."
        )
    if env.control_hz > link.command_hz * (1.0 + _SLACK):
        yield (
            f"It sends commands at {env.control_hz:g} Hz, but the link transmits them at {link.command_hz:g} "
            "Hz."
        )
    if float(bundle.manifest["rates_hz"].get("state", 0.0)) > link.state_hz * (1.0 + _SLACK):
        yield f"It observes states at a higher rate than the link transmits ({link.state_hz:g} Hz)."
    if env.name.partition(":")[0] not in TASKS:
        yield (
            f"It was trained for {env.name}, but the policy nodes only build the observations of "
            f"{' and '.join(TASKS)}."
        )
    if bundle.envelope is None:
        yield "It has no flight envelope: none of its measured flights succeeded, so train it for longer."
