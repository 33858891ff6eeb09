"""Drivers of robots: their protocol, their table of names, and checks of their settings.

    with open_driver("ur", {"host": "192.168.0.10"}) as arm:      # runs in its own process, with a watchdog
        state = arm.read()
        sent = arm.write(JointCommand(target_rad))                # the command that the robot really received

Policies never call a driver; the safety filter does. A driver limits commands once more, to what its device
can do, and brings the robot to rest when commands stop. Keep the hardware emergency stop within reach all the
same.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from hardware.setting_types import expected_types, wrong_type
from hardware.states import ArmState, JointCommand, QuadState, Setpoint
from robo_rl.core.errors import ConfigError, DriverError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.registry import Table, lookup

# Time without a `write` after which the robot is stopped. The robot has to be at rest 100 ms after the last
# command; the remaining 20 ms are for sending the stop.
WATCHDOG_S = 0.08
PERIODS = 1.5  # the watchdog lasts at least so many command periods, so that a late command does not trip it

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
# These drivers get a bus or a simulator as an argument, which cannot be sent to another process. Their
# docstrings say what stops the robot instead of the guard process.
IN_PROCESS = ("ros2_control", "sim_arm")

StateT = TypeVar("StateT", covariant=True)
CommandT = TypeVar("CommandT")


@runtime_checkable
class Driver(Protocol[StateT, CommandT]):
    """Interface of one robot. Not thread-safe.

    After `stop`, or after the watchdog has stopped the robot, call `connect` again before the next `write`.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Joint names in the order of commands; empty for a quadcopter."""
        ...

    def connect(self) -> None:
        """Open the connection and check that the robot is the expected one. Moves nothing; may be repeated.

        Raises DriverError, or MissingDependencyError when the vendor's package is not installed.
        """
        ...

    def read(self) -> StateT:
        """The newest measured state, without waiting. Raises DriverError when the connection is lost."""
        ...

    def write(self, command: CommandT) -> CommandT:
        """Send one command and return what was really sent, after the limits of driver and device.

        The first call starts the watchdog. Raises DriverError, and sends nothing, for a command that is not
        finite or has the wrong size or type, and while the robot has a fault.
        """
        ...

    def stop(self, reason: str) -> None:
        """Bring the robot to rest: an arm holds, a quadcopter lands. Returns at once; may be repeated.

        reason: text for the robot's log and for later error messages, where the robot supports it.
        """
        ...

    def close(self) -> None:
        """Stop a moving robot, wait until a landing is over, and close the connection. May be repeated."""
        ...


ArmDriver = Driver[ArmState, JointCommand]
QuadDriver = Driver[QuadState, Setpoint]


class DriverSession:
    """Context manager that connects a driver on entry, and stops and closes it on exit."""

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
            self.driver.stop("the program closed it" if error is None else type(error).__name__)
        except DriverError:
            if error is None:  # otherwise the user has to see the first error, not this one
                raise
        finally:
            self.driver.close()


def open_driver(name: str, settings: Mapping[str, Any], watchdog_s: float = WATCHDOG_S) -> DriverSession:
    """Session of the driver `name` in a guard process.

    The guard process stops the robot when this process dies or stalls. The drivers in `IN_PROCESS` run in
    this process, without a guard. `watchdog_s` may also be given among the settings. Raises
    UnknownNameError for an unknown driver and ConfigError for unknown, missing or unusable settings.
    """
    if name in IN_PROCESS:
        return DriverSession(make_driver(name, settings, watchdog_s))
    from hardware.guard.guard import Guarded  # here, because the guarded process imports this module too

    return DriverSession(Guarded(name, *_watched(settings, watchdog_s)))


def make_driver(name: str, settings: Mapping[str, Any], watchdog_s: float = WATCHDOG_S) -> Driver[Any, Any]:
    """The driver `name` in this process, without the guard; only the device's own watchdog remains.

    docs/drivers.md lists those watchdogs. Raises UnknownNameError for an unknown driver and ConfigError for
    unknown, missing or unusable settings.
    """
    check_settings(name, settings, watchdog_s)
    settings, watchdog_s = _watched(settings, watchdog_s)
    driver: Driver[Any, Any] = lookup("driver", DRIVERS, name)(**settings, watchdog_s=watchdog_s)
    return driver


def check_settings(name: str, settings: Mapping[str, Any], watchdog_s: float = WATCHDOG_S) -> None:
    """Raise UnknownNameError for an unknown driver.

    Raises ConfigError for an unknown or missing setting, one of another type than the driver's argument, and
    a command rate at which the watchdog would fire between two commands.
    """
    settings, watchdog_s = _watched(settings, watchdog_s)
    parameters = inspect.signature(lookup("driver", DRIVERS, name)).parameters
    known = [key for key in parameters if key != "watchdog_s"] + ["watchdog_s"]  # common to all drivers
    if unknown := sorted(settings.keys() - set(known)):
        limits = [key for key in unknown if key in ("max_tilt_rad", "max_speed_m_s") and name in QUADS]
        words = " and ".join(limits)
        hint = (
            f" {words} of the flight filter bound a policy: robo-rl up quad {limits[0]}=..." if limits else ""
        )
        raise ConfigError(
            f"The driver '{name}' has no setting {', '.join(unknown)}. It takes: {', '.join(known)}.{hint}"
        )
    empty = inspect.Parameter.empty
    if needed := [key for key, value in parameters.items() if value.default is empty and key not in settings]:
        raise ConfigError(f"The driver '{name}' needs the setting {', '.join(needed)}.")
    kinds = expected_types(lookup("driver", DRIVERS, name))
    for key, value in settings.items():
        if expected := wrong_type(value, kinds[key]):
            raise ConfigError(f"{key}={value!r} of the driver '{name}': expected {expected}.")
    _check_rate(name, settings, watchdog_s)


def _watched(settings: Mapping[str, Any], watchdog_s: float) -> tuple[dict[str, Any], float]:
    """The settings without watchdog_s, and its value [s]. Raises ConfigError outside (0, 10] s."""
    rest = dict(settings)
    given = rest.pop("watchdog_s", watchdog_s)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0.0 < given <= 10.0:
        raise ConfigError(
            f"watchdog_s={given!r}: expected seconds above 0 and at most 10, such as {WATCHDOG_S}."
        )
    return rest, float(given)


def _check_rate(name: str, settings: Mapping[str, Any], watchdog_s: float) -> None:
    """Raise ConfigError for a command rate at which the watchdog would fire between two commands."""
    rate_hz = settings.get("rate_hz")
    if rate_hz is not None and not rate_hz >= PERIODS / watchdog_s:
        raise ConfigError(
            f"rate_hz={rate_hz:g} of the driver '{name}' is too slow: the watchdog stops the "
            f"robot {1e3 * watchdog_s:g} ms after a command. Expected at least {PERIODS / watchdog_s:g} Hz, "
            "or a longer watchdog_s."
        )


def import_vendor(module: str, robot: str, extra: str) -> Any:
    """The imported vendor's module. Raises MissingDependencyError with the command that installs it.

    robot: the device in words, such as "a UR arm". extra: the extra of robo-rl that installs the package.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Driving {robot} needs the package '{error.name}', which is not installed. "
            f"Run: {pip_install(extra)}"
        ) from error


def check_reachable(robot: str, host: str, port: int, timeout_s: float = 2.0) -> None:
    """Raise DriverError unless a TCP server listens at host:port.

    Vendors' packages wait much longer before they report an unreachable host.
    """
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        raise DriverError(
            f"{host}:{port} does not answer ({why}), so {robot} cannot be connected. Check that it is "
            "switched on, that the address is right, and that this computer is on its network."
        ) from error
