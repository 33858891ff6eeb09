"""Training states on disk: nested dicts of tensors and plain values, as safetensors and JSON. Nothing unpickles."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.files import read_json, write_atomic, write_json

_TENSORS, _JSON = "state.safetensors", "state.json"
_HERE = "__tensor__"  # stands in the JSON where a tensor was


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write {state.safetensors, state.json}; the JSON comes last and carries the checksum that makes both valid.

    Keys must be strings or integers; leaves are tensors, numbers, strings, booleans, None and lists of these.
    """
    tensors: dict[str, Tensor] = {}
    plain = _split(state, "", tensors)
    data = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    write_atomic(folder / _TENSORS, data)
    write_json(folder / _JSON, {"crc32": zlib.crc32(data), "state": plain})


def load_state(folder: Path) -> dict[str, Any]:
    """What `save_state` wrote. Raises CheckpointError when it is absent, damaged or cut off."""
    try:
        plain = read_json(folder / _JSON)
        data = (folder / _TENSORS).read_bytes()
        if zlib.crc32(data) != plain["crc32"]:
            raise CheckpointError(
                f"{folder} is damaged (its checksum differs). Delete it to resume from the one before."
            )
        tensors = load(data)
    except (DataError, OSError, SafetensorError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder} holds no training state that can be read: {error}. Resume from another."
        ) from error
    state = _join(plain["state"], "", tensors)
    assert isinstance(state, dict)
    return state


def _split(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[path] = value.clone()
        return {_HERE: True}
    if isinstance(value, Mapping):
        return [[key, _split(item, f"{path}/{key}", tensors)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return {"list": [_split(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]}
    return value


def _join(value: Any, path: str, tensors: Mapping[str, Tensor]) -> Any:
    """Mappings are stored as lists of pairs, so that integer keys (optimiser states) stay integers."""
    if isinstance(value, list):
        return {key: _join(item, f"{path}/{key}", tensors) for key, item in value}
    if isinstance(value, dict):
        if _HERE in value:
            return tensors[path]
        return [_join(item, f"{path}/{i}", tensors) for i, item in enumerate(value["list"])]
    return value
