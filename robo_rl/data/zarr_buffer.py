"""Reading zarr buffers of other programs: numbers only, and only codecs that cannot run code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, MissingDependencyError, RoboRLError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import Int64, Shaped

EPISODE_ENDS = "meta/episode_ends"
# A buffer names its own decoders, and a common one unpickles. These map bytes to bytes, or reorder axes.
PLAIN_CODECS = frozenset(
    {
        *("adler32", "crc32", "crc32c", "fletcher32"),
        *("blosc", "bz2", "gzip", "lz4", "lzma", "shuffle", "zlib", "zstd"),
        *("bytes", "sharding_indexed", "transpose"),
    }
)
_PLAIN_KINDS = "biuf"  # bool, integers, floats: types that numpy reads without building Python objects
_COPY = "Rewrite the buffer with arrays of numbers and a codec such as Blosc or Zstd."


class ZarrBuffer:
    """A zarr group (format 2 or 3) with arrays under data/ and the ends of its episodes in meta/episode_ends.

    Each array is checked before its first chunk is decoded: only numbers and booleans, and only
    `PLAIN_CODECS`, because a buffer may name decoders that run code. Raises DataError for anything else and
    for unreadable files.
    """

    def __init__(self, path: str | Path) -> None:
        zarr = open_zarr()
        self.path = Path(path)
        try:
            self._group = zarr.open_group(self.path, mode="r")
            self._group[EPISODE_ENDS]
            data: Any = self._group["data"]
            self.names = tuple(sorted(f"data/{name}" for name in data.array_keys()))
        except Exception as error:  # zarr reports broken metadata by errors of many types
            absent = isinstance(error, FileNotFoundError | KeyError)
            raise DataError(
                f"{self.path} is not a replay buffer: a zarr group with data/* and {EPISODE_ENDS} was "
                f"expected{'' if absent else f' ({error!r})'}. Check the path."
            ) from error

    def attribute(self, name: str) -> Any:
        """An attribute of the group, JSON; None if there is none."""
        with self._reading(".zattrs"):
            return dict(self._group.attrs).get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an array, e.g. "data/state"."""
        return tuple(int(size) for size in self._array(name).shape)

    def read(self, name: str, rows: slice) -> Shaped[ndarray, "n ..."]:
        """Rows of an array."""
        array = self._array(name)
        with self._reading(name):
            return np.asarray(array[rows])

    def episode_ends(self) -> Int64[ndarray, " episodes"]:
        """End (exclusive) of the rows of each episode, strictly increasing."""
        array = self._array(EPISODE_ENDS)
        if len(array.shape) != 1 or np.dtype(array.dtype).kind not in "iu":
            raise DataError(
                f"{self.path}/{EPISODE_ENDS} is {array.dtype}{list(array.shape)}: one row of integers was "
                "expected."
            )
        with self._reading(EPISODE_ENDS):
            return np.asarray(array[:], dtype=np.int64)

    def _array(self, name: str) -> Any:
        """An array that passed the checks of type and codecs."""
        with self._reading(name):
            array: Any = self._group[name]
            metadata = array.metadata.to_dict()
            kind = np.dtype(array.dtype).kind
        if kind not in _PLAIN_KINDS:
            raise DataError(
                f"{self.path}/{name} holds {array.dtype}, but only numbers and booleans are read. {_COPY}"
            )
        if unknown := sorted(set(codec_names(metadata)) - PLAIN_CODECS):
            raise DataError(
                f"{self.path}/{name} needs the codecs {unknown}, but only codecs that cannot run code are "
                f"used: {sorted(PLAIN_CODECS)}. {_COPY}"
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


def open_zarr() -> Any:
    """The package zarr. Raises MissingDependencyError without it."""
    try:
        import zarr
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"zarr buffers need the package 'zarr'. Run: {pip_install('train')}"
        ) from error
    return zarr


def codec_names(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Names of all codecs in an array's metadata (zarr format 2 or 3), including those inside shards."""
    for key in ("compressor", "filters", "codecs", "index_codecs"):
        entries = metadata.get(key) or ()
        for entry in entries if isinstance(entries, Sequence) else (entries,):
            config = entry if isinstance(entry, Mapping) else entry.to_dict()
            yield str(config.get("id", config.get("name"))).removeprefix("numcodecs.")
            yield from codec_names(config.get("configuration") or {})
