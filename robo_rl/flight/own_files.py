"""A user's own craft and track files in the settings of a training: named with a checksum, and recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.swarm import SwarmConfig
from sim.engines.own_file import is_own, pinned
from sim.engines.quad.craft import load_craft
from sim.tasks.flight.track import load_track

Config = TypeVar("Config", FlyConfig, SwarmConfig)


def with_checksums(config: Config) -> Config:
    """The settings with the checksum of its numbers behind the name of each own file.

    Raises ConfigError for a name with a checksum whose file has changed.
    """
    changes: dict[str, Any] = {}
    for key, numbers in own_numbers(config).items():
        name = key.removesuffix("_numbers")
        changes[name] = pinned(getattr(config, name), numbers)
    return replace(config, **changes)


def own_numbers(config: FlyConfig | SwarmConfig) -> dict[str, dict[str, Any]]:
    """Numbers of the own files, for the policy's note: `craft_numbers`, `track_numbers`."""
    found = {}
    if is_own(config.craft):
        found["craft_numbers"] = load_craft(config.craft).numbers
    if isinstance(config, FlyConfig) and config.task == "race" and is_own(config.track):
        found["track_numbers"] = load_track(config.track).numbers
    return found
