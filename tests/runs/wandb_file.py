"""Reader of an offline run of Weights & Biases: Protocol Buffers in LevelDB's log format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

_HEADER, _BLOCK, _CHUNK_HEADER = 7, 32768, 7  # bytes
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4  # kinds of a chunk


def history(folder: Path) -> list[dict[str, Any]]:
    """Logged values of all runs in a folder `wandb`, oldest run first, without W&B's own keys."""
    found = []
    for path in sorted(folder.glob("offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        for record in _records(path):
            items = {(item.key or "/".join(item.nested_key)): item for item in record.history.item}
            if items:
                found.append({
                    key: json.loads(item.value_json) for key, item in items.items() if key[0] != "_"
                })  # fmt: skip
    return found


def config(folder: Path) -> dict[str, Any]:
    """Settings of the newest run in a folder `wandb`, with its id and project."""
    path = max(folder.glob("offline-run-*/run-*.wandb"))
    noted = next(record.run for record in _records(path) if record.HasField("run"))
    values = {item.key: json.loads(item.value_json) for item in noted.config.update}
    return values | {"id": noted.run_id, "project": noted.project}


def _records(path: Path) -> Iterator[Any]:
    record = import_module("wandb.proto.wandb_internal_pb2").Record  # its stubs do not list it
    data, at, parts = path.read_bytes(), _HEADER, b""
    while at + _CHUNK_HEADER <= len(data):
        if _BLOCK - at % _BLOCK < _CHUNK_HEADER:  # the rest of a block is padding
            at += _BLOCK - at % _BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + _CHUNK_HEADER : at + _CHUNK_HEADER + length]
        at += _CHUNK_HEADER + length
        assert kind in (_FULL, _FIRST, _MIDDLE, _LAST), f"{path}: chunk of kind {kind} at {at}"
        if kind in (_FULL, _LAST):
            yield record.FromString(parts)
            parts = b""
