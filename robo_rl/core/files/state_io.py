"""Training states on disk: nested dicts of tensors and plain values, as safetensors and JSON."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.files.durable import read_json, write_atomic, write_json

_TENSORS, _JSON = "state.safetensors", "state.json"
_HERE, _LIST, _FLOAT = (
    "tensor",
    "list",
    "float",
)  # markers of values that JSON does not have; mappings are lists of pairs there


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write state.safetensors, then state.json with the checksums of both.

    Keys must be strings or integers. Leaves are tensors, numbers, strings, booleans, None and lists of these.
    Tensors that share memory are written separately. Beside the state, memory is needed for two copies of it:
    the tensors' bytes, and the file's.
    """
    tensors: dict[str, Tensor] = {}
    plain = _split(state, "", tensors)
    data = save(_separate(tensors))
    write_atomic(folder / _TENSORS, data)
    write_json(folder / _JSON, {"crc32": zlib.crc32(data), "state_crc32": _crc32_of(plain), "state": plain})


def has_state(folder: Path) -> bool:
    """True if `save_state` has written a complete state there."""
    return (folder / _JSON).is_file()


def load_state(folder: Path) -> dict[str, Any]:
    """State written by `save_state`. Raises CheckpointError if it is absent, damaged or truncated."""
    try:
        plain = read_json(folder / _JSON)
        data = (folder / _TENSORS).read_bytes()
        if (zlib.crc32(data), _crc32_of(plain["state"])) != (plain["crc32"], plain["state_crc32"]):
            raise CheckpointError(f"{folder} is damaged: its checksum differs.")
        state = _join(plain["state"], load(data))
    except (DataError, OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder} holds no readable training state: {str(error).rstrip('.')}."
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{folder} holds a {type(state).__name__}, expected a training state.")
    return state


def _crc32_of(plain: Any) -> int:
    return zlib.crc32(json.dumps(plain, separators=(",", ":")).encode())


def _split(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # {"a/b": x} and {"a": {"b": y}} would have one name
        name = path if path not in tensors else f"{path}#{len(tensors)}"
        tensors[name] = value
        return {_HERE: name}
    if isinstance(value, Mapping):
        return [[key, _split(item, f"{path}/{key}", tensors)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return {_LIST: [_split(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):  # not in JSON
        return {_FLOAT: repr(value)}
    return value


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, copied where they share memory."""
    separate, known = {}, set[int]()
    for name, tensor in tensors.items():
        there = tensor.detach().cpu().contiguous()
        place = there.untyped_storage().data_ptr()
        separate[name] = there.clone() if place in known else there
        known.add(place)
    return separate


def _join(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Value with its tensors. Mappings are stored as lists of pairs, so integer keys (optimiser states) stay
    integers.
    """
    if isinstance(value, list):
        return {key: _join(item, tensors) for key, item in value}
    if not isinstance(value, dict):
        return value
    if _HERE in value:
        return tensors[value[_HERE]]
    if _FLOAT in value:
        return float(value[_FLOAT])
    return [_join(item, tensors) for item in value[_LIST]]
