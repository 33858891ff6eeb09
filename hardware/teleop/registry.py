"""Teleoperation devices by name: those of this package, installed ones, and recorded input.

A package offers devices by entry points in the group `robo_rl.teleoperators`:

    [project.entry-points."robo_rl.teleoperators"]
    pedal = "acme_pedal:make_pedal"

A maker is called as make(robot, **settings), with the description of the arm and the keys of the file
`settings=`; it returns a `Teleoperator`. Nothing is imported before a device is chosen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from hardware.description import RobotDescription
from hardware.setting_types import expected_types, wrong_type
from hardware.teleop.device import Teleoperator
from hardware.teleop.input_file import RecordedInput
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.registry import Table, lookup

GROUP = "robo_rl.teleoperators"
RECORDING = "recording:"
LEADER = "leader"  # a leader arm, whose driver's file is given apart
# name -> (maker, extra that installs what it imports)
DEVICES: Table = {
    "gamepad": ("hardware.teleop.joystick:make_gamepad", None),
    "keyboard": ("hardware.teleop.keyboard:make_keyboard", None),
    "spacemouse": ("hardware.teleop.spacemouse:make_spacemouse", None),
    "pose_stream": ("hardware.teleop.pose_link:make_pose_link", None),
}


def make_teleoperator(name: str, settings: Mapping[str, Any], robot: RobotDescription) -> Teleoperator:
    """The device `name`, not yet connected; `recording:<file>` replays recorded input.

    Raises UnknownNameError for an unknown device and ConfigError for settings that it does not take.
    """
    if name.startswith(RECORDING):
        if settings:
            raise ConfigError(f"device={name} takes no settings, found {', '.join(settings)}.")
        return RecordedInput(name.removeprefix(RECORDING))
    make = lookup("device", DEVICES, name) if name in DEVICES else _installed(name)
    check_maker_settings(name, make, settings)
    device = make(robot, **settings)
    if not isinstance(device, Teleoperator):
        raise ConfigError(
            f"device={name} made a {type(device).__name__}, which lacks a method of Teleoperator: connect, "
            "get_action, send_feedback, help, close."
        )
    return device


def check_device(name: str) -> None:
    """Raise UnknownNameError for a name that no device has. Nothing is imported or connected."""
    from importlib.metadata import entry_points

    if name in (*DEVICES, LEADER) or name.startswith(RECORDING):
        return
    if name not in (found := {point.name for point in entry_points(group=GROUP)}):
        raise UnknownNameError("device", name, [*DEVICES, LEADER, *found, f"{RECORDING}<file>"])


def check_maker_settings(name: str, make: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown or missing setting of a device, or one of another type than the
    maker's argument.
    """
    parameters = list(inspect.signature(make).parameters.values())[1:]  # after the robot, or the kind
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not open_ended and (unknown := sorted(settings.keys() - set(known))):
        takes = ", ".join(known) or "none"
        raise ConfigError(f"device={name} has no setting {', '.join(unknown)}. It takes: {takes}.")
    needed = [p.name for p in parameters if p.default is p.empty and p.name in known]
    if missing := [key for key in needed if key not in settings]:
        raise ConfigError(f"device={name} needs the setting {', '.join(missing)} in the file settings=.")
    try:
        kinds = expected_types(make)
    except NameError:  # an installed maker whose annotations are for type checkers alone
        return
    for key, value in settings.items():
        if key in kinds and (expected := wrong_type(value, kinds[key])):
            raise ConfigError(f"{key}={value!r} of device={name}: expected {expected}.")


def _installed(name: str) -> Callable[..., Any]:
    """Maker of an installed device. Raises UnknownNameError, or ConfigError where it cannot be imported."""
    from importlib.metadata import entry_points  # takes a tenth of the time in which a robot's node starts

    check_device(name)
    (point,) = [point for point in entry_points(group=GROUP) if point.name == name][:1]
    try:
        return cast(Callable[..., Any], point.load())
    except Exception as error:  # whatever another package raises while it is imported
        raise ConfigError(f"device={name} ({point.value}) cannot be imported: {error}.") from error
