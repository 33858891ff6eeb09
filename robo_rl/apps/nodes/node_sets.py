"""Sets of nodes: one YAML file each, shared by `robo-rl up` and the launch files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from robo_rl.apps.nodes.cameras import SetCamera, cameras_of
from robo_rl.core.errors import ConfigError, UnknownNameError

FOLDER = Path(__file__).resolve().parents[2] / "conf" / "node_sets"
MODULE = "robo_rl.apps.node"  # python3 -m this <node> key=value ...


@dataclass(frozen=True)
class Argument:
    """A value that the user may set. A default of None means that it is required."""

    name: str
    default: str | None
    meaning: str


@dataclass(frozen=True)
class Member:
    """One node of a set. Settings hold values, $argument, or !argument (true if it is empty).

    when: arguments joined by |; the node is omitted without a value for any of them. each: "camera", one node
    for each camera of the set.
    """

    node: str
    settings: Mapping[str, Any]
    when: str | None = None
    each: str | None = None

    def starts(self, values: Mapping[str, str | None]) -> bool:
        """False for a node that is omitted. values: of all arguments."""
        return self.when is None or any(values[name] for name in self.when.split("|"))

    def uses(self, argument: str) -> bool:
        """True if a setting has its value from this argument."""
        return any(value in (f"${argument}", f"!{argument}") for value in self.settings.values())


@dataclass(frozen=True)
class NodeSet:
    """Members in starting order; they stop in reverse, so that the filter outlives commanding nodes."""

    name: str
    about: str
    arguments: tuple[Argument, ...]
    members: tuple[Member, ...]

    def commands(self, given: Mapping[str, str], example: str = "") -> dict[str, list[str]]:
        """Node -> its command-line arguments, `["safety_filter", "robot=sim_arm", ...]`, for these values.

        example: command that starts this set, if not `robo-rl up`; the error for a missing argument shows it.
        Raises ConfigError for an unknown or a missing argument, and for one that no node of these would use.
        """
        known = {argument.name: argument for argument in self.arguments}
        for name in given:
            if name not in known:
                raise ConfigError(f"The set '{self.name}' takes no '{name}'; it takes {', '.join(known)}.")
        values = {name: given.get(name, argument.default) for name, argument in known.items()}
        if lacking := [name for name, value in values.items() if value is None]:
            start = example or f"robo-rl up {self.name}"
            raise ConfigError(
                f"The set '{self.name}' needs {lacking[0]}=...: {known[lacking[0]].meaning}. "
                f"For example: {start} {' '.join(f'{name}=...' for name in lacking)}"
            )
        self._refuse_without_effect(given, values)
        cameras = cameras_of(values) if "camera" in known else []
        if cameras:
            values["camera_name"] = "+".join(camera.name for camera in cameras)
        commands: dict[str, list[str]] = {}
        for member in self.members:
            if member.each:
                commands |= _one_each(member, values, [camera for camera in cameras if camera.source])
            elif member.starts(values):
                commands[member.node] = [member.node, *_words(member, values)]
        return commands

    def _refuse_without_effect(self, given: Mapping[str, str], values: Mapping[str, str | None]) -> None:
        """Raise ConfigError for an argument that only nodes which do not start would use."""
        defaults = {argument.name: argument.default for argument in self.arguments}
        for name, value in given.items():
            users = [member for member in self.members if member.uses(name)]
            if (
                not value
                or value == defaults[name]
                or any(user.each or user.starts(values) for user in users)
            ):
                continue
            if users:
                needs = "=... or ".join(str(users[0].when).split("|"))
                raise ConfigError(
                    f"{name}={value} has no effect without {needs}=..., as the node that uses it, "
                    f"{users[0].node}, does not start. Give both, or leave {name} out."
                )

    def settings_from(self, node: str, arguments: Collection[str]) -> set[str]:
        """Settings of a node that have their value from one of these arguments."""
        return {
            key
            for member in self.members
            if member.node == node
            for key, value in member.settings.items()
            if isinstance(value, str) and value[:1] in ("$", "!") and value[1:] in arguments
        }


def set_names() -> list[str]:
    """Names of all sets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_set(name: str) -> NodeSet:
    """Set of this name. Raises UnknownNameError."""
    if name not in set_names():
        raise UnknownNameError("set of nodes", name, set_names())
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    arguments = tuple(
        Argument(key, None if default is None else _text(default), meaning)
        for key, (default, meaning) in data["arguments"].items()
    )
    members = tuple(
        Member(row["node"], row.get("settings", {}), row.get("when"), row.get("each"))
        for row in data["nodes"]
    )
    return NodeSet(name, data["about"], arguments, members)


def _one_each(
    member: Member, values: Mapping[str, str | None], cameras: Sequence[SetCamera]
) -> Iterator[tuple[str, list[str]]]:
    """One node per camera; of several, each node's name contains the camera's."""
    for camera in cameras:
        name = member.node if len(cameras) == 1 else f"{member.node}_{camera.name}"
        named = [] if name == member.node else [f"name={name}"]
        yield name, [member.node, *_words(member, {**values, **camera.values()}), *camera.words(), *named]


def _words(member: Member, values: Mapping[str, str | None]) -> list[str]:
    return [f"{key}={_filled(value, values)}" for key, value in member.settings.items()]


def _filled(value: Any, values: Mapping[str, str | None]) -> str:
    """A value with its argument filled in; `!argument` is true when the argument is empty."""
    if isinstance(value, str) and value.startswith("!"):
        return _text(not values[value[1:]])
    return str(values[value[1:]]) if isinstance(value, str) and value.startswith("$") else _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
