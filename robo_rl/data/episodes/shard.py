"""Storage of one array as one uncompressed zarr v3 shard: consecutive rows, then an index.

    payload:  chunk 0 | chunk 1 | ...                          C order, little endian, zeros behind the last
    index:    (offset, bytes) as two uint64 per chunk | CRC-32C of those pairs as uint32

The payload comes first and uncompressed: frames are appended as they are captured, a memory map starts at
byte 0, and a commit only adds the index. Format: zarr v3 specification, codec `sharding_indexed` 1.0 with
`index_location: end`.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped
from robo_rl.data.episodes.schema import ArrayMeta

_FRAME_CHUNK_BYTES = 16 * 1024  # rows of this size or more get one chunk each
_MAX_CHUNK_BYTES = 256 * 1024


def row_bytes(dtype: str, row_shape: tuple[int, ...]) -> int:
    return np.dtype(dtype).itemsize * math.prod(row_shape)


def chunk_rows(rows: int, bytes_per_row: int) -> int:
    """Rows per chunk: one image, or as many small rows as fit 256 KiB, with little padding."""
    if bytes_per_row >= _FRAME_CHUNK_BYTES:
        return 1
    chunks = max(1, math.ceil(rows * bytes_per_row / _MAX_CHUNK_BYTES))
    return max(1, math.ceil(rows / chunks))


def layout(array: ArrayMeta) -> tuple[int, int, int]:
    """(rows per chunk, number of chunks, bytes per chunk)."""
    rows, per_row = array.shape[0], row_bytes(array.dtype, array.shape[1:])
    per_chunk = chunk_rows(rows, per_row)
    return per_chunk, math.ceil(rows / per_chunk), per_chunk * per_row


def payload_bytes(array: ArrayMeta) -> int:
    """Size of the rows, without padding and index [bytes]."""
    return row_bytes(array.dtype, array.shape)


def index_bytes(array: ArrayMeta) -> bytes:
    """Index of the shard: offset and size of each chunk, then their CRC-32C."""
    _, chunks, size = layout(array)
    pairs = np.stack([np.arange(chunks, dtype="<u8") * size, np.full(chunks, size, dtype="<u8")], axis=1)
    data = pairs.astype("<u8").tobytes()
    return data + int(google_crc32c.value(data)).to_bytes(4, "little")


def tail_bytes(array: ArrayMeta) -> bytes:
    """Bytes that a commit appends to the payload: zeros up to a full chunk, then the index."""
    _, chunks, size = layout(array)
    return bytes(chunks * size - payload_bytes(array)) + index_bytes(array)


def shard_name(axes: int) -> str:
    """Name of the only shard: 'c' and one zero per axis, joined by dots, so that no directories are
    nested.
    """
    return ".".join(["c"] + ["0"] * axes)


def zarr_array_json(array: ArrayMeta) -> dict[str, Any]:
    """zarr.json of the array."""
    per_chunk, chunks, _ = layout(array)
    endian = {} if np.dtype(array.dtype).itemsize == 1 else {"configuration": {"endian": "little"}}
    sharding = {
        "chunk_shape": [per_chunk, *array.shape[1:]],
        "codecs": [{"name": "bytes", **endian}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
    }
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": array.dtype,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [per_chunk * chunks, *array.shape[1:]]},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": False if array.dtype == "bool" else 0,
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "attributes": {},
        "storage_transformers": [],
    }


def zarr_group_json(arrays: dict[str, ArrayMeta]) -> dict[str, Any]:
    """zarr.json of the episode. It lists the arrays, so readers need not scan the directory."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {},
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": {name: zarr_array_json(array) for name, array in arrays.items()},
        },
    }


def checked_shard(directory: Path, array: ArrayMeta) -> Path:
    """Path of the shard in `directory`. Raises DataError if it is absent or too short."""
    path = directory / shard_name(len(array.shape))
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is missing. Run `robo-rl data validate` on the dataset to find all faults."
        ) from error
    if size < payload_bytes(array):
        raise DataError(
            f"{path} has {size} bytes, its rows need {payload_bytes(array)}: it is truncated. "
            "Restore the episode from a copy, or delete its directory."
        )
    return path


def verify(directory: Path, array: ArrayMeta) -> None:
    """Raise DataError if the array in `directory` is truncated or differs from what was committed."""
    path = checked_shard(directory, array)
    if file_crc32c(path, payload_bytes(array)) != array.crc32c:
        raise DataError(
            f"The checksum of {path} differs: its bytes changed after the recording. Restore the "
            "episode from a copy, or delete its directory; robo-rl data validate finds all such files."
        )


def memory_map(directory: Path, array: ArrayMeta) -> Shaped[ndarray, "..."]:
    """Read-only memory map (rows, *row_shape) of the payload. Raises DataError as `checked_shard` does."""
    return np.memmap(checked_shard(directory, array), dtype=array.dtype, mode="r", shape=array.shape)


class PayloadFile:
    """Growing payload of one array: append, roll back, truncate. Tracks size and CRC-32C.

    Nothing is buffered in the process: rows that `append` has written survive a SIGKILL.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        flags = os.O_RDWR | os.O_APPEND | (0 if resume else os.O_CREAT | os.O_EXCL)
        self.path = path
        self.fd = os.open(path, flags, 0o644)
        self.size = os.fstat(self.fd).st_size
        self.crc = 0

    def append(self, data: bytes | Shaped[ndarray, "..."]) -> None:
        """Write all of `data` (C-contiguous) at the end. An OSError may leave part of it written."""
        rest = (memoryview(data) if isinstance(data, bytes) else data.data).cast("B")
        total = len(rest)
        while rest:
            rest = rest[os.write(self.fd, rest) :]
        self.crc = google_crc32c.extend(self.crc, data)
        self.size += total

    def rollback(self, mark: tuple[int, int]) -> None:
        """Return to an earlier (size, crc)."""
        os.ftruncate(self.fd, mark[0])
        self.size, self.crc = mark

    def cut(self, size: int) -> None:
        """Truncate to `size` bytes and read them for their CRC."""
        os.ftruncate(self.fd, size)
        self.size, self.crc = size, file_crc32c(self.path, size)

    def settle(self, size: int) -> None:
        """Truncate to `size`, unless the file has that size already."""
        if self.size != size or os.fstat(self.fd).st_size != size:
            self.cut(size)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def file_crc32c(path: Path, size: int) -> int:
    """CRC-32C of the first `size` bytes of a file."""
    crc, left = 0, size
    with path.open("rb", buffering=0) as file:
        while left > 0 and (block := file.read(min(left, 1 << 22))):
            crc = google_crc32c.extend(crc, block)
            left -= len(block)
    return int(crc)
