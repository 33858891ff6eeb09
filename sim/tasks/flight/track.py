"""Race tracks: positions and directions of gates, one YAML file per track."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.engines.own_file import check_numbers, is_own, path_of, restore_hint
from sim.tasks.flight.course import Room

FOLDER = Path(__file__).parents[1] / "tracks"
_KEYS = ("source", "room_m", "opening_m", "frame_m", "gates")


@dataclass(frozen=True, slots=True)
class Gate:
    """An upright square opening."""

    position_m: tuple[float, float, float]  # of its middle; world, z = 0 is the floor
    heading_deg: float  # direction in which it is flown: 0 along x, 90 along y

    @property
    def normal(self) -> tuple[float, float]:
        """Horizontal unit vector (x, y) [world] of the direction in which the gate is flown."""
        angle = math.radians(self.heading_deg)
        return math.cos(angle), math.sin(angle)


@dataclass(frozen=True, slots=True)
class RaceTrack:
    """Gates of a lap in the order in which they are flown."""

    name: str
    source: str
    room: Room
    opening_m: float  # side of the square opening
    frame_m: float  # width of the frame around it
    gates: tuple[Gate, ...]

    @property
    def outer_m(self) -> float:
        """Side of the square that frame and opening fill together."""
        return self.opening_m + 2.0 * self.frame_m

    @property
    def length_m(self) -> float:
        """Length of the straight lines from gate to gate."""
        places = [gate.position_m for gate in self.gates]
        return sum(math.dist(a, b) for a, b in zip(places, [*places[1:], places[0]], strict=True))

    @property
    def numbers(self) -> dict[str, Any]:
        """Room and gates."""
        values = asdict(self)
        return {key: value for key, value in values.items() if key not in ("name", "source")}


def list_tracks() -> list[str]:
    """Names of the tracks that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_track(name: str, scale: float = 1.0) -> RaceTrack:
    """A track by name, or from a YAML file by its path; all lengths are multiplied by `scale`.

    Raises UnknownNameError for an unknown name, ConfigError for a file that describes no valid track, or
    another one than the checksum in its name.
    """
    own = is_own(name)
    path = Path(path_of(name)) if own else FOLDER / f"{name}.yaml"
    if own and not path.is_file():
        known = ", ".join(list_tracks())
        raise ConfigError(
            f"Track file {path} does not exist. Check the path, or choose: {known}." + restore_hint(name)
        )
    if not path.exists():
        raise UnknownNameError("track", name, list_tracks())
    try:
        data = yaml.safe_load(path.read_text())
        if missing := [key for key in _KEYS if not isinstance(data, dict) or key not in data]:
            raise ValueError(f"{missing[0]} is missing")
        track = _read(path.stem, data)
    except (TypeError, ValueError, KeyError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path.name} does not describe a track: {error}. Compare with tracks/ring.yaml."
        ) from error
    check_numbers(name, track.numbers)
    return check_track(scaled(track, scale))


def scaled(track: RaceTrack, scale: float) -> RaceTrack:
    """The track with room, gates and frames scaled. Raises ConfigError for a scale that is not above 0."""
    if not scale > 0.0:
        raise ConfigError(f"track_scale = {scale:g} is impossible: it must be above 0.")
    room = Room(_times(track.room.low_m, scale), _times(track.room.high_m, scale))
    gates = tuple(Gate(_times(gate.position_m, scale), gate.heading_deg) for gate in track.gates)
    return replace(
        track, room=room, gates=gates, opening_m=track.opening_m * scale, frame_m=track.frame_m * scale
    )


def check_track(track: RaceTrack) -> RaceTrack:
    """The track itself. Raises ConfigError for gates that overlap or stand outside the room."""
    if len(track.gates) < 2:
        raise ConfigError(f"Track '{track.name}' has {len(track.gates)} gates; a lap needs at least 2.")
    if not (track.opening_m > 0.0 and track.frame_m >= 0.0):
        raise ConfigError(
            f"Track '{track.name}' has an opening of {track.opening_m:g} m and a frame of {track.frame_m:g} "
            "m: the opening must be above 0, the frame not below."
        )
    half = track.outer_m / 2.0
    for number, gate in enumerate(track.gates):
        nx, ny = gate.normal
        reach = (half * abs(ny), half * abs(nx), half)
        for axis, at, low, high, r in zip(
            "xyz", gate.position_m, track.room.low_m, track.room.high_m, reach, strict=True
        ):
            if not low <= at - r <= at + r <= high:
                raise ConfigError(
                    f"Gate {number} of track '{track.name}' stands outside of the box: {axis} = {at - r:.2f} "
                    f"... {at + r:.2f} m, expected within {low:g} ... {high:g} m. Move the gate, or enlarge "
                    "room_m."
                )
    for (i, one), (j, two) in combinations(enumerate(track.gates), 2):
        apart = math.dist(one.position_m, two.position_m)
        if apart < track.outer_m:
            raise ConfigError(
                f"Gates {i} and {j} of track '{track.name}' overlap: their middles are {apart:.2f} m apart, "
                f"and a gate is {track.outer_m:.2f} m wide. Move one of them."
            )
    return track


def _read(name: str, data: dict[str, Any]) -> RaceTrack:
    low, high = ((float(x), float(y), float(z)) for x, y, z in data["room_m"])
    gates = []
    for gate in data["gates"]:
        x, y, z = gate["position_m"]
        gates.append(Gate((float(x), float(y), float(z)), float(gate["heading_deg"])))
    return RaceTrack(
        name,
        str(data["source"]),
        Room(low, high),
        float(data["opening_m"]),
        float(data["frame_m"]),
        tuple(gates),
    )


def _times(v: tuple[float, float, float], scale: float) -> tuple[float, float, float]:
    return v[0] * scale, v[1] * scale, v[2] * scale
