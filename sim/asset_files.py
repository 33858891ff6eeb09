"""Folder of bundled models and presets, and YAML files of named settings in their form."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.files.yaml_error import yaml_words

ASSETS = Path(__file__).resolve().parent / "assets"


class _OnceOnly(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Safe loader that refuses a key that is given twice: PyYAML keeps the last one without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        seen: set[str] = set()
        for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' is given twice", key.start_mark
                )
            seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


def read_yaml(path: Path) -> Any:
    """Content of a YAML file. Raises ConfigError for invalid YAML and for a key that is given twice."""
    try:
        return yaml.load(path.read_text(), _OnceOnly)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML, {yaml_words(error)}. Correct the file.") from error


def read_settings(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Settings of a YAML file, whose keys must be `known`. Raises ConfigError for invalid YAML and for a key
    that is given twice, UnknownNameError for an unknown key.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        found = "nothing" if data is None else repr(data)
        raise ConfigError(f"{path} holds {found}; expected keys: {', '.join(known)}.")
    for key in data:
        if key not in known:
            raise UnknownNameError(f"key of {path}", str(key), known)
    return data
