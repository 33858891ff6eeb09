"""Messages between a guard and its driver: one JSON object per packet of a Unix socket, never a pickle."""

from __future__ import annotations

import json
import socket
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import numpy as np

from hardware.states import Record
from robo_rl.core import errors

MAX_BYTES = 65536
_RECORDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Record)}


def to_json(value: Any) -> Any:
    """Encode records as {"record": name, field: value, ...} and arrays as lists; floats stay exact, NaN
    included.
    """
    if is_dataclass(value) and not isinstance(value, type):
        body = {item.name: to_json(getattr(value, item.name)) for item in fields(value)}
        return {"record": type(value).__name__, **body}
    if isinstance(value, np.ndarray):
        return value.astype(float).tolist()
    return value.item() if isinstance(value, np.generic) else value


def from_json(data: Any) -> Any:
    """Decode what `to_json` wrote; every list becomes a float64 array.

    Raises KeyError for an unknown record.
    """
    if isinstance(data, dict) and "record" in data:
        body = {key: from_json(value) for key, value in data.items() if key != "record"}
        return _RECORDS[data["record"]](**body)
    return np.array(data, float) if isinstance(data, list) else data


def send(end: socket.socket, message: dict[str, Any]) -> None:
    end.send(json.dumps(message).encode())


def receive(end: socket.socket) -> dict[str, Any] | None:
    """One message, or None when the other side is gone. Raises TimeoutError as the socket does."""
    try:
        packet = end.recv(MAX_BYTES)
    except (ConnectionResetError, BrokenPipeError):
        return None
    return dict(json.loads(packet)) if packet else None


def error_to_json(error: errors.RoboRLError) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error)}


def error_from_json(data: dict[str, str]) -> errors.RoboRLError:
    """Error that the other process raised; DriverError for a class that only its own module knows."""
    kind = getattr(errors, data["error"], errors.DriverError)
    known = (
        isinstance(kind, type)
        and issubclass(kind, errors.RoboRLError)
        and kind is not errors.UnknownNameError
    )
    made: errors.RoboRLError = (kind if known else errors.DriverError)(data["message"])
    return made
