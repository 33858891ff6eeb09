"""Names of a user's own craft and track files, with a checksum of their numbers: mine.yaml#1a2b3c4d.

Runs, bundles and environments name a file like this, so that a policy does not follow later edits of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from robo_rl.core.errors import ConfigError

_SUFFIXES = (".yaml", ".yml")
_PINNED = re.compile(r"(.+\.ya?ml)#([0-9a-f]{8})")


def is_own(name: str) -> bool:
    """True for the name of a file, False for one of the package's crafts or tracks."""
    return path_of(name).endswith(_SUFFIXES)


def path_of(name: str) -> str:
    """The name without a checksum."""
    found = _PINNED.fullmatch(name)
    return found[1] if found else name


def pinned(name: str, numbers: Mapping[str, Any]) -> str:
    """The name with the checksum of these numbers."""
    return f"{path_of(name)}#{_checksum(numbers)}"


def check_numbers(name: str, numbers: Mapping[str, Any]) -> None:
    """Raise ConfigError if the name has a checksum and these are other numbers."""
    found = _PINNED.fullmatch(name)
    if found and found[2] != (now := _checksum(numbers)):
        raise ConfigError(
            f"{found[1]} has changed since the training: the checksum of its numbers was {found[2]} and is "
            f"{now}. Restore the file, or train again.{restore_hint(name)}"
        )


def restore_hint(name: str) -> str:
    """Sentence on where the numbers of a file with a checksum are recorded; empty for other names."""
    if path_of(name) == name:
        return ""
    return " The policy's policy.json holds them: train.craft_numbers, train.track_numbers."


def _checksum(numbers: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:8]
