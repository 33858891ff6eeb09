"""Frames of the policy server: a JSON header and raw arrays, without pickles.

    "RRL1" | header bytes (u32) | array bytes (u64) | header (JSON) | arrays, one after the other

Numbers and arrays are little-endian, arrays in C order. The header holds `kind`, `meta` and, per array, name,
dtype and shape. Every size is checked against its bound, and the sum of the arrays against the announced
bytes, before memory is allocated.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import RemoteError

MAGIC = b"RRL1"
PREFIX = struct.Struct("<4sIQ")
_NUMBERS = ("float32", "float64", "float16", "bool", "uint8", "uint16", "int8", "int16", "int32", "int64")
DTYPES = {name: np.dtype(name).newbyteorder("<") for name in _NUMBERS}
MOST_HEADER_BYTES = 1 << 20
MOST_ARRAYS, MOST_AXES, MOST_SIDE = 64, 8, 1 << 24
MOST_SIDES = 1 << 48  # product of the sides above zero, which also NumPy bounds for an array without numbers
MOST_NAME = 128  # characters of a kind or a name
MOST_DIGITS = 20  # of a whole number in the header
_QUOTED = 400  # characters of the peer's text in a message


class GarbledError(RemoteError):
    """Bytes that are no frame, or a frame that the protocol does not allow at this point."""


@dataclass(frozen=True)
class Frame:
    """One message. meta: JSON values. arrays: by name, of a type in `DTYPES`."""

    kind: str
    meta: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Type and shape of an array that was announced by a header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Header:
    """Checked header of a frame."""

    kind: str
    meta: dict[str, Any]
    arrays: dict[str, ArrayLayout]


def encode(frame: Frame) -> list[bytes | memoryview]:
    """Parts of the frame in order: prefix and header, then the arrays without a copy where possible."""
    entries, parts = [], list[memoryview]()
    for name, array in frame.arrays.items():
        if array.dtype.name not in DTYPES:
            raise GarbledError(
                f"The array '{name}' is {array.dtype.name}; frames hold {', '.join(DTYPES)} only."
            )
        # `ascontiguousarray` would make one axis of none.
        plain = np.asarray(array, dtype=DTYPES[array.dtype.name], order="C")
        entries.append({"name": name, "dtype": plain.dtype.name, "shape": list(plain.shape)})
        parts.append(_bytes_of(plain))
    header = json.dumps(
        {"kind": frame.kind, "meta": frame.meta, "arrays": entries}, separators=(",", ":"), allow_nan=False
    ).encode()
    if len(header) > MOST_HEADER_BYTES:
        raise GarbledError(f"A header takes {len(header)} bytes; at most {MOST_HEADER_BYTES} are read.")
    prefix = PREFIX.pack(MAGIC, len(header), sum(part.nbytes for part in parts))
    return [prefix + header, *parts]


def read_prefix(data: bytes, most_array_bytes: int) -> tuple[int, int]:
    """(bytes of the header, bytes of the arrays) that a prefix announces, both within their bounds."""
    magic, header, arrays = PREFIX.unpack(data)
    if magic != MAGIC:
        raise GarbledError(
            f"it begins with {magic!r}, expected {MAGIC!r}: it is not a robo-rl of this version"
        )
    if not 2 <= header <= MOST_HEADER_BYTES:
        raise GarbledError(f"a header of {header} bytes was announced, at most {MOST_HEADER_BYTES} are read")
    if arrays > most_array_bytes:
        raise GarbledError(f"arrays of {arrays} bytes were announced, at most {most_array_bytes} are read")
    return header, arrays


def read_header(data: bytes, array_bytes: int) -> Header:
    """Header of a frame whose arrays take exactly `array_bytes`."""
    try:
        body = json.loads(
            data.decode(),
            object_pairs_hook=_once,
            parse_constant=_refused,
            parse_int=_whole,
            parse_float=_real,
        )
    except (ValueError, RecursionError) as error:
        raise GarbledError(f"its header is not valid JSON ({shown(str(error))})") from error
    if not isinstance(body, dict) or body.keys() != {"kind", "meta", "arrays"}:
        raise GarbledError("its header does not hold exactly kind, meta and arrays")
    if not isinstance(body["meta"], dict) or not isinstance(body["arrays"], list):
        raise GarbledError("its header holds meta or arrays of another type")
    if len(body["arrays"]) > MOST_ARRAYS:
        raise GarbledError(f"{len(body['arrays'])} arrays were announced, at most {MOST_ARRAYS} are read")
    arrays: dict[str, ArrayLayout] = {}
    for entry in body["arrays"]:
        name, layout = _layout(entry)
        if name in arrays:
            raise GarbledError(f"the array '{shown(name)}' was announced twice")
        arrays[name] = layout
    if (total := sum(layout.size for layout in arrays.values())) != array_bytes:
        raise GarbledError(f"its arrays take {total} bytes, {array_bytes} were announced")
    return Header(_name(body["kind"], "kind"), body["meta"], arrays)


def empty(layout: ArrayLayout) -> tuple[NDArray[Any], memoryview]:
    """An array to be filled, and its bytes."""
    array = np.empty(layout.shape, layout.dtype)
    return array, _bytes_of(array)


def decode(data: bytes, most_array_bytes: int) -> Frame:
    """Frame of exactly these bytes. Raises GarbledError for all others."""
    if len(data) < PREFIX.size:
        raise GarbledError(f"it ends after {len(data)} bytes")
    header_bytes, array_bytes = read_prefix(data[: PREFIX.size], most_array_bytes)
    begin = PREFIX.size + header_bytes
    if len(data) != begin + array_bytes:
        raise GarbledError(f"it has {len(data)} bytes, {begin + array_bytes} were announced")
    header, arrays = read_header(data[PREFIX.size : begin], array_bytes), dict[str, NDArray[Any]]()
    for name, layout in header.arrays.items():
        arrays[name], place = empty(layout)
        place[:] = data[begin : begin + layout.size]
        begin += layout.size
    return Frame(header.kind, header.meta, arrays)


def shown(text: str) -> str:
    """Text of the peer for a terminal: without control characters, and not long."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= _QUOTED else plain[:_QUOTED] + "…"


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Bytes of an array in C order, without a copy."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def _layout(entry: object) -> tuple[str, ArrayLayout]:
    if not isinstance(entry, dict) or entry.keys() != {"name", "dtype", "shape"}:
        raise GarbledError("an array was announced without exactly name, dtype and shape")
    name, dtype, shape = _name(entry["name"], "name of an array"), entry["dtype"], entry["shape"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise GarbledError(f"'{name}' is {shown(repr(dtype))}, only {', '.join(DTYPES)} are read")
    if not isinstance(shape, list) or len(shape) > MOST_AXES:
        raise GarbledError(f"the shape of '{name}' is no list of at most {MOST_AXES} sizes")
    if any(type(side) is not int or not 0 <= side <= MOST_SIDE for side in shape):
        raise GarbledError(f"the shape of '{name}' holds another size than 0 to {MOST_SIDE}")
    if math.prod(side for side in shape if side) > MOST_SIDES:
        raise GarbledError(f"the shape of '{name}' holds sizes whose product is above {MOST_SIDES}")
    return name, ArrayLayout(DTYPES[dtype], tuple(shape))


def _name(value: object, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_NAME or not value.isprintable():
        raise GarbledError(f"the {what} is not a text of 1 to {MOST_NAME} printable characters")
    return value


def _once(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is there twice")
    return made


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} digits")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is beyond the range of floats")
    return value
