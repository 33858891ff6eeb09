"""TFRecord files and the tf.train.Example messages in them, without TensorFlow.

record:   length (uint64) | masked CRC-32C of the length | data | masked CRC-32C of the data    little endian
Example:  map from names to a list of bytes, of float32, or of int64 (protocol buffers)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Float32, Int64, UInt8

Value = list[bytes] | Float32[ndarray, " n"] | Int64[ndarray, " n"]
_MASK = 0xA282EAD8
_LARGEST_BYTES = 1 << 34  # of one record
_BYTES, _FLOATS, _INTS = 1, 2, 3  # fields of tf.train.Feature


def write_record(file: BinaryIO, data: bytes) -> None:
    """Append one record."""
    length = struct.pack("<Q", len(data))
    file.write(length + _masked_crc(length) + data + _masked_crc(data))


def read_records(path: Path) -> Iterator[bytes]:
    """Records of a file. Raises DataError if it is truncated or damaged."""
    with path.open("rb") as file:
        while head := file.read(12):
            if len(head) < 12 or _masked_crc(head[:8]) != head[8:]:
                raise DataError(f"{path} is no TFRecord file, or it is damaged. Copy it again.")
            (size,) = struct.unpack("<Q", head[:8])
            if size > _LARGEST_BYTES:
                raise DataError(f"{path} states a record of {size} bytes, which is no episode.")
            data, crc = file.read(size), file.read(4)
            if len(data) < size or _masked_crc(data) != crc:
                raise DataError(f"{path} is truncated or damaged in a record of {size} bytes. Copy it again.")
            yield data


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF)


def encode_example(features: Mapping[str, Value]) -> bytes:
    """Serialised tf.train.Example, with names in order."""
    entries = []
    for name in sorted(features):
        entry = _field(1, name.encode()) + _field(2, _encode_feature(features[name]))
        entries.append(_field(1, entry))
    return _field(1, b"".join(entries))


def _encode_feature(value: Value) -> bytes:
    if isinstance(value, list):
        return _field(_BYTES, b"".join(_field(1, each) for each in value))
    if value.dtype == np.float32:
        return _field(_FLOATS, _field(1, np.ascontiguousarray(value, dtype="<f4").tobytes()))
    return _field(_INTS, _field(1, _varints(np.asarray(value, dtype=np.int64))))


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(values: Int64[ndarray, " n"]) -> bytes:
    """Packed varints; negative numbers take ten bytes."""
    if not len(values):
        return b""
    rest = values.astype(np.uint64)
    parts = np.stack([(rest >> np.uint64(7 * i)) & np.uint64(0x7F) for i in range(10)], axis=1)
    digits = np.maximum(1, 10 - (parts[:, ::-1] != 0).argmax(axis=1))
    digits[(parts == 0).all(axis=1)] = 1
    place = np.arange(10)
    parts[place < digits[:, None] - 1] |= np.uint64(0x80)
    return bytes(parts[place < digits[:, None]].astype(np.uint8).tobytes())


def decode_example(data: bytes, where: str) -> dict[str, Value]:
    """Features of a serialised tf.train.Example. Raises DataError for anything else."""
    try:
        found: dict[str, Value] = {}
        for _, features in _fields(memoryview(data)):
            for _, entry in _fields(features):
                parts = dict(_fields(entry))
                found[bytes(parts[1]).decode()] = _decode_feature(parts.get(2, memoryview(b"")))
        return found
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise DataError(f"{where} is no tf.train.Example ({error!r}). Copy it again.") from error


def _decode_feature(data: memoryview) -> Value:
    for kind, payload in _fields(data):
        if kind == _BYTES:
            return [bytes(each) for _, each in _fields(payload)]
        parts = [each for _, each in _fields(payload, packed=True)]
        joined = np.frombuffer(b"".join(parts), dtype=np.uint8)
        return joined.view("<f4").copy() if kind == _FLOATS else _from_varints(joined)
    return []


def _fields(data: memoryview, packed: bool = False) -> Iterator[tuple[int, memoryview]]:
    """Numbers and payloads of the fields of a message. packed: also single numbers of a repeated field."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        kind = tag & 7
        if kind == 2:
            size, position = _read_varint(data, position)
        elif kind == 5 and packed:
            size = 4
        elif kind == 0 and packed:
            _, end = _read_varint(data, position)
            size = end - position
        else:
            raise ValueError(f"field of type {kind}")
        if position + size > len(data):
            raise ValueError("a field exceeds its message")
        yield tag >> 3, data[position : position + size]
        position += size


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for i in range(10):
        byte = data[position + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, position + i + 1
    raise ValueError("a number is longer than ten bytes")


def _from_varints(data: UInt8[ndarray, " bytes"]) -> Int64[ndarray, " n"]:
    if not len(data):
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(data < 0x80)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise ValueError("the last number is cut")
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts >= 10).any():
        raise ValueError("a number is longer than ten bytes")
    shift = (np.arange(len(data)) - np.repeat(starts, ends - starts + 1)).astype(np.uint64) * np.uint64(7)
    parts = (data & 0x7F).astype(np.uint64) << shift
    return np.add.reduceat(parts, starts).astype(np.int64)
