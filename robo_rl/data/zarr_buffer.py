"""Reading foreign zarr buffers: plain numbers only, through codecs that cannot run code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, MissingDependencyError, RoboRLError
from robo_rl.core.shapes import Int64, Shaped

EPISODE_ENDS = "meta/episode_ends"
# A buffer names its own decoders, and one that is in wide use unpickles. These turn bytes into bytes, or reorder axes.
PLAIN_CODECS = frozenset(
    {
        *("adler32", "crc32", "crc32c", "fletcher32"),
        *("blosc", "bz2", "gzip", "lz4", "lzma", "shuffle", "zlib", "zstd"),
        *("bytes", "sharding_indexed", "transpose"),
    }
)
_PLAIN_KINDS = "biuf"  # bool, integers, floats: what numpy reads without building Python objects
_COPY = "Write the buffer again with arrays of numbers and a codec such as Blosc or Zstd."


class ZarrBuffer:
    """A zarr group (format 2 or 3) with arrays under data/ and the ends of its episodes in meta/episode_ends.

    An array is checked before any of its chunks is decoded: numbers and booleans only, and codecs of `PLAIN_CODECS`
    only, because a buffer may name decoders that run code. Raises DataError for whatever is not so or cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            import zarr
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "Imports need the package 'zarr'. Run: pip install 'robo-rl[train]'"
            ) from error
        self.path = Path(path)
        try:
            self._group = zarr.open_group(self.path, mode="r")
            self._group[EPISODE_ENDS]
            data: Any = self._group["data"]
            self.names = tuple(sorted(f"data/{name}" for name in data.array_keys()))
        except Exception as error:  # zarr reports broken metadata by errors of many types
            raise DataError(
                f"{self.path} is not a replay buffer: a zarr group with data/* and {EPISODE_ENDS} was expected "
                f"({error!r}). Check the path."
            ) from error

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an array, e.g. "data/state"."""
        return tuple(int(size) for size in self._array(name).shape)

    def read(self, name: str, rows: slice) -> Shaped[ndarray, "n ..."]:
        """Rows of an array."""
        array = self._array(name)
        with self._reading(name):
            return np.asarray(array[rows])

    def episode_ends(self) -> Int64[ndarray, " episodes"]:
        """Row after the last one of each episode, strictly increasing."""
        array = self._array(EPISODE_ENDS)
        if len(array.shape) != 1 or np.dtype(array.dtype).kind not in "iu":
            raise DataError(
                f"{self.path}/{EPISODE_ENDS} is {array.dtype}{list(array.shape)}: one row of integers was expected."
            )
        with self._reading(EPISODE_ENDS):
            return np.asarray(array[:], dtype=np.int64)

    def _array(self, name: str) -> Any:
        """An array that is safe to read."""
        with self._reading(name):
            array: Any = self._group[name]
            metadata = array.metadata.to_dict()
            kind = np.dtype(array.dtype).kind
        if kind not in _PLAIN_KINDS:
            raise DataError(
                f"{self.path}/{name} holds {array.dtype}, and only numbers and booleans are read. {_COPY}"
            )
        if unknown := sorted(set(codec_names(metadata)) - PLAIN_CODECS):
            raise DataError(
                f"{self.path}/{name} asks for the codecs {unknown}, and only those that cannot run code are used: "
                f"{sorted(PLAIN_CODECS)}. {_COPY}"
            )
        return array

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except RoboRLError:
            raise
        except Exception as error:  # codecs report damaged bytes by errors of many types
            raise DataError(
                f"{self.path}/{name} cannot be read ({error!r}). Restore it from a copy of the buffer."
            ) from error


def codec_names(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Names of all codecs that an array's metadata (zarr format 2 or 3) asks for, those inside of shards included."""
    for key in ("compressor", "filters", "codecs", "index_codecs"):
        entries = metadata.get(key) or ()
        for entry in entries if isinstance(entries, Sequence) else (entries,):
            config = entry if isinstance(entry, Mapping) else entry.to_dict()
            yield str(config.get("id", config.get("name"))).removeprefix("numcodecs.")
            yield from codec_names(config.get("configuration") or {})
