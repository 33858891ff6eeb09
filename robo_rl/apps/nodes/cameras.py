"""Cameras of a set of nodes: one node for each, named by the arguments or the robot's description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robo_rl.core.errors import ConfigError

if TYPE_CHECKING:  # `ros2 launch` runs in the Python of ROS, which may lack the packages that this needs
    from hardware.description import CameraDescription

UNNAMED = "camera"  # default name of a camera


@dataclass(frozen=True, slots=True)
class SetCamera:
    """One camera of a set.

    source: empty where another program publishes its pictures. known: its settings in the description.
    """

    name: str
    source: str
    calibration: str
    known: CameraDescription | None

    def values(self) -> dict[str, str]:
        """Arguments of the set, as passed to this camera's node."""
        return {"camera": self.source, "camera_name": self.name, "calibration": self.calibration}

    def words(self) -> list[str]:
        """Settings of the description for this camera."""
        if self.known is None:
            return []
        return [
            f"width={self.known.width_px}",
            f"height={self.known.height_px}",
            f"fps={self.known.rate_hz:g}",
        ]


def cameras_of(values: Mapping[str, str | None]) -> list[SetCamera]:
    """Cameras by `camera`, `camera_name` and `calibration`, each joined by +, then the others of the `robot`,
    where the set has one.

    Raises ConfigError where it is not clear which camera is which.
    """
    from hardware.description import load_description

    if "robot" not in values and not values["camera"] and not values["camera_name"]:
        return []
    described = load_description(str(values["robot"])).cameras if "robot" in values else {}
    given = str(values["camera"] or "")
    if "robot" not in values and not values["camera_name"] and "+" in given:
        raise ConfigError(
            f"camera={given}: name these cameras as in the bundle by camera_name=, joined by +."
        )
    names = _names(str(values["camera_name"] or ""), given, tuple(described))
    sources = _parts(given, names, "camera") or [_source(described.get(name)) for name in names]
    calibrations = _parts(str(values.get("calibration") or ""), names, "calibration") or [""] * len(names)
    rows = zip(names, sources, calibrations, strict=True)
    others = [SetCamera(name, "", "", known) for name, known in described.items() if name not in names]
    return [SetCamera(name, source, file, described.get(name)) for name, source, file in rows] + others


def _names(camera_name: str, given: str, described: Sequence[str]) -> list[str]:
    """Names as given; else those of the description, if as many as sources; else the default name."""
    if camera_name:
        names = camera_name.split("+")
        if wrong := [name for name in names if not name.isidentifier()]:
            raise ConfigError(
                f"camera_name={camera_name}: '{wrong[0]}' is no camera's name. Join names by +: wrist+front."
            )
        if len(set(names)) < len(names):
            raise ConfigError(f"camera_name={camera_name} names a camera twice.")
        return names
    if given and len(described) != 1 and len(given.split("+")) != max(1, len(described)):
        has = f"the description has {', '.join(described)}" if described else "the description has no cameras"
        raise ConfigError(
            f"camera={given}: {has}. Say which is which by camera_name=, as many names as cameras: "
            f"camera=0+2 camera_name={'+'.join(described[:2]) if len(described) > 1 else 'wrist+front'}."
        )
    return list(described) or [UNNAMED]


def _parts(text: str, names: Sequence[str], argument: str) -> list[str]:
    """Parts of an argument joined by +, one for each name; a single one may contain a +.

    Empty without a value.
    """
    if not text:
        return []
    parts = [text] if len(names) == 1 else text.split("+")
    if len(parts) != len(names):
        raise ConfigError(
            f"{argument}={text} is {len(parts)} for the {len(names)} cameras {', '.join(names)}: join as "
            "many by +, in this order."
        )
    return parts


def _source(known: CameraDescription | None) -> str:
    return "" if known is None else known.source
