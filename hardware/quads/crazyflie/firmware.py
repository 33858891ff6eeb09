"""Properties of the Crazyflie's firmware that the drivers over its radio and over crazyswarm2 share."""

from __future__ import annotations

from robo_rl.core.errors import DriverError

ARMED, FLYING, TUMBLED, LOCKED, CRASHED = 2, 16, 32, 64, 128  # bits of supervisor.info
FAULTS = {
    TUMBLED: "has tumbled: set it upright",
    LOCKED: "is locked after a fault: restart it",
    CRASHED: "has crashed: check it, then restart it",
}
PID = 1  # value of stabilizer.controller; the other controllers do not follow body rates
FULL_THRUST, MAX_THRUST, MIN_THRUST = 65535, 60000, 1000  # the firmware clips above and cuts off below
DESCENT_M_S = 0.3  # speed of a landing
GROUND_M = 0.1  # a craft that is lower and not flying stands on the ground
MIN_LANDING_S, MAX_LANDING_S = 1.0, 15.0


def fault_of(info: int, robot: str) -> str:
    """The fault in supervisor.info as a sentence about `robot`; empty without one."""
    return next((f"{robot} {words}" for bit, words in FAULTS.items() if info & bit), "")


def thrust_number(thrust: float) -> int:
    """Thrust as the firmware's 16-bit number, after its limits. thrust: fraction of the full thrust."""
    number = min(round(thrust * FULL_THRUST), MAX_THRUST)
    return number if number >= MIN_THRUST else 0


def stands(info: int, height_m: float) -> bool:
    """True for a craft on the ground, where a landing would spin the motors up."""
    return not info & FLYING and height_m < GROUND_M


def landing_duration_s(height_m: float) -> float:
    """Duration of a landing from this height."""
    return min(max(height_m / DESCENT_M_S, MIN_LANDING_S), MAX_LANDING_S)


def check_after_stop(stopped: bool, robot: str) -> None:
    """Raise DriverError after a stop, which lands the craft."""
    if stopped:
        raise DriverError(f"{robot} is landing after a stop. Connect again when it is on the ground.")


def check_unlocked(unlocked: bool, robot: str) -> None:
    """Raise DriverError unless the thrust was unlocked at `connect`, which needs a craft on the ground."""
    if not unlocked:
        raise DriverError(
            f"{robot} was flying when it was connected, so its thrust may be locked. Unlocking needs a "
            "thrust of 0, which would make it fall. Land, connect on the ground, take off. Nothing was sent."
        )
