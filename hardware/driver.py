"""Drivers: the last metre to a robot. One protocol, one table, and the sentences for what goes wrong.

    with open_driver("ur", {"host": "192.168.0.10"}) as arm:      # in a process of its own, with a watchdog
        state = arm.read()
        sent = arm.write(JointCommand(target_rad))                # what the robot was really told

A policy never talks to a driver: the safety filter does. A driver bounds commands once more, by what its
device can do, and brings the robot to rest when commands stop coming; the hardware emergency stop stays
within reach all the same.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from hardware.states import ArmState, JointCommand, QuadState, Setpoint
from robo_rl.core.errors import ConfigError, DriverError, MissingDependencyError
from robo_rl.core.registry import Table, lookup

# Without a `write` for this long, the robot is brought to rest: it has to rest 100 ms after the last command,
# and what is left of them is for the stop's own way to the robot.
WATCHDOG_S = 0.08
PERIODS = 1.5  # of commands that the watchdog has to outlast, for one that comes a little late

# name -> (class, extra that installs the vendor's package)
ARMS: Table = {
    "ur": ("hardware.arms.ur:UrDriver", "ur"),
    "xarm": ("hardware.arms.xarm:XarmDriver", "xarm"),
    "ros2_control": ("hardware.arms.ros2_control:Ros2ControlDriver", None),
    "sim_arm": ("hardware.arms.simulated:SimulatedArmDriver", None),
}
QUADS: Table = {
    "crazyflie": ("hardware.quads.crazyflie.driver:CrazyflieDriver", "crazyflie"),
    "px4": ("hardware.quads.px4.mavlink_driver:Px4Driver", "px4"),
    "px4_topics": ("hardware.quads.px4.topics_driver:Px4TopicsDriver", "dds"),
    "crazyswarm2": ("hardware.quads.crazyswarm2.driver:Crazyswarm2Driver", "dds"),
}
DRIVERS: Table = {**ARMS, **QUADS}
# These are handed a bus or a simulator, which cannot pass into another process; what guards them stands in
# their files.
IN_PROCESS = ("ros2_control", "sim_arm")

StateT = TypeVar("StateT", covariant=True)
CommandT = TypeVar("CommandT")


@runtime_checkable
class Driver(Protocol[StateT, CommandT]):
    """One robot. Not thread-safe. After `stop`, or when its watchdog fired, it must be connected anew to
    obey.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Joint names in the order of commands; empty for a quadcopter."""
        ...

    def connect(self) -> None:
        """Reach the robot and check that it is the one that was meant. Moves nothing, and may be called
        again.

        Raises DriverError or MissingDependencyError with a sentence that says what to do.
        """
        ...

    def read(self) -> StateT:
        """The newest measured state; never waits for one. Raises DriverError when the connection is lost."""
        ...

    def write(self, command: CommandT) -> CommandT:
        """Send one command; returns what was really sent, after the limits of driver and device.

        The first one starts the watchdog. Raises DriverError, and has sent nothing, for what is not finite,
        has the wrong size or kind, or comes while the robot refuses.
        """
        ...

    def stop(self, reason: str) -> None:
        """Come to rest now: an arm holds, a quadcopter lands. Returns at once, does nothing the second
        time.
        """
        ...

    def close(self) -> None:
        """Stop if it moves, wait until a landing is over, and let go of the connection. May be called
        twice.
        """
        ...


ArmDriver = Driver[ArmState, JointCommand]
QuadDriver = Driver[QuadState, Setpoint]


class DriverSession:
    """A driver that is connected inside and closed outside of a `with` block."""

    def __init__(self, driver: Driver[Any, Any]) -> None:
        self.driver = driver

    def __enter__(self) -> Driver[Any, Any]:
        try:
            self.driver.connect()
        except BaseException:
            self.driver.close()
            raise
        return self.driver

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.driver.stop("the program let go of it" if error is None else type(error).__name__)
        except DriverError:
            if error is None:  # else what went wrong first is what the user must read
                raise
        finally:
            self.driver.close()


def open_driver(name: str, settings: Mapping[str, Any], watchdog_s: float = WATCHDOG_S) -> DriverSession:
    """The driver `name` behind its guard: in a process of its own, which stops the robot when ours dies or
    stalls.

    `watchdog_s` may also stand among the settings, as in a settings file.
    """
    if name in IN_PROCESS:
        return DriverSession(make_driver(name, settings, watchdog_s))
    from hardware.guard.guard import Guarded  # here, because the guarded process imports this module too

    return DriverSession(Guarded(name, *_watched(settings, watchdog_s)))


def make_driver(name: str, settings: Mapping[str, Any], watchdog_s: float = WATCHDOG_S) -> Driver[Any, Any]:
    """The bare driver, in this process: what guards it then is the device's own watchdog, see
    docs/drivers.md.

    Raises UnknownNameError, or ConfigError that lists the settings, for a name or a setting that does not
    exist.
    """
    settings, watchdog_s = _watched(settings, watchdog_s)
    check_settings(name, settings)
    _check_rate(name, settings, watchdog_s)
    driver: Driver[Any, Any] = lookup("driver", DRIVERS, name)(**settings, watchdog_s=watchdog_s)
    return driver


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Raise UnknownNameError, or ConfigError for a setting that the driver does not have or that it lacks."""
    parameters = inspect.signature(lookup("driver", DRIVERS, name)).parameters
    known = [key for key in parameters if key != "watchdog_s"] + ["watchdog_s"]  # every driver has one
    if unknown := sorted(settings.keys() - set(known)):
        raise ConfigError(
            f"The driver '{name}' has no setting {', '.join(unknown)}. It takes: {', '.join(known)}."
        )
    empty = inspect.Parameter.empty
    if needed := [key for key, value in parameters.items() if value.default is empty and key not in settings]:
        raise ConfigError(f"The driver '{name}' needs the setting {', '.join(needed)}.")


def _watched(settings: Mapping[str, Any], watchdog_s: float) -> tuple[dict[str, Any], float]:
    """The settings without watchdog_s, and its value. Raises ConfigError for what is no time to wait."""
    rest = dict(settings)
    given = rest.pop("watchdog_s", watchdog_s)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0.0 < given <= 10.0:
        raise ConfigError(
            f"watchdog_s={given!r} cannot be used, expected seconds above 0 and at most 10, such as "
            f"{WATCHDOG_S}."
        )
    return rest, float(given)


def _check_rate(name: str, settings: Mapping[str, Any], watchdog_s: float) -> None:
    """Raise ConfigError for commands so far apart that the watchdog would stop the robot between two of
    them.
    """
    rate_hz = settings.get("rate_hz")
    if isinstance(rate_hz, int | float) and 0.0 < rate_hz < PERIODS / watchdog_s:
        raise ConfigError(
            f"rate_hz={rate_hz:g} of the driver '{name}' is too slow: its watchdog stops the robot "
            f"{1e3 * watchdog_s:g} ms after a command. Expected at least {PERIODS / watchdog_s:g} Hz, or a "
            "longer watchdog_s."
        )


def vendor(module: str, robot: str, extra: str) -> Any:
    """Import a vendor's package, or raise MissingDependencyError with the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Driving {robot} needs the package '{error.name}', which is not installed. "
            f"Run: pip install 'robo-rl[{extra}]'"
        ) from error


def reachable(robot: str, host: str, port: int, timeout_s: float = 2.0) -> None:
    """Raise DriverError unless something listens there: vendors' packages wait long for what does not."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        raise DriverError(
            f"Nothing answers as {robot} at {host}:{port} ({why}). Is it switched on, is the address right, "
            "is this computer on its network?"
        ) from error
