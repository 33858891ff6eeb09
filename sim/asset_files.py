"""Folder of bundled models and presets, and YAML files of named settings in their form."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.files.yaml_error import yaml_words

ASSETS = Path(__file__).resolve().parent / "assets"


def read_settings(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Settings of a YAML file, whose keys must be `known`. Raises ConfigError for invalid YAML,
    UnknownNameError for a key.
    """
    try:
        data = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML, {yaml_words(error)}. Correct the file.") from error
    if not isinstance(data, dict):
        found = "nothing" if data is None else repr(data)
        raise ConfigError(f"{path} holds {found}; expected keys: {', '.join(known)}.")
    for key in data:
        if key not in known:
            raise UnknownNameError(f"key of {path}", str(key), known)
    return data
