"""Schema of a dataset: dataset.json, episode.json and the arrays of every episode."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.describe_path import is_importable, not_a
from robo_rl.core.files.durable import read_json
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.commands import command

FORMAT = "robo-rl/episodes"
VERSION = 1
DATASET_JSON, EPISODE_JSON, RECORDING_JSON, ZARR_JSON = (
    "dataset.json",
    "episode.json",
    "recording.json",
    "zarr.json",
)
EPISODES, STAGING = "episodes", "staging"

JPEG_ENDS = "jpeg_ends"  # (rows, cameras) int64: end of each JPEG inside the blob of its camera
STAMPS = "stamps_ns"  # (frames, columns) int64
STAMP_COLUMNS = ("t_capture_ns", "t_receive_ns", "t_command_ns")
SPLIT = "split"  # key of EpisodeMeta.info: where an episode was cut into this and another part
CONTINUES = "continues"  # in it: the recording went on after the last frame of this part
DAMAGED = "damaged"  # key of EpisodeMeta.info: recovered with data that differ from the commit
NO_STAMP = -1  # unknown time stamp

Codec = Literal["raw", "jpeg"]
Role = Literal["obs", "step", "blob"]

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*")
_RESERVED = {
    *("action", "reward", "terminated", "intervention", STAMPS, JPEG_ENDS),
    *(EPISODE_JSON, RECORDING_JSON, ZARR_JSON),  # files in the same folder as the arrays
}
_MOST_AXES = 8
_MOST = 2**48  # largest number of rows and largest size; sums stay below 2**63
_DTYPES = {"bool", "uint8", "uint16", "int32", "int64", "float16", "float32", "float64"}


@dataclass(frozen=True, slots=True)
class Column:
    """One array of an episode. With a final observation, `obs` arrays have one row more than `step`
    arrays.
    """

    name: str
    dtype: str
    row_shape: tuple[int, ...]
    role: Role


@dataclass(frozen=True, slots=True)
class DatasetMeta:
    """dataset.json: contract of the environment or robot, and storage of images and stamps."""

    env: EnvSpec
    image_codec: Codec = "raw"
    jpeg_quality: int = 95
    stamps: tuple[str, ...] = STAMP_COLUMNS
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 < self.env.control_hz < math.inf:
            raise DataError(
                f"The rate of '{self.env.name}' is {self.env.control_hz} Hz, expected a finite rate above 0."
            )
        for key, spec in self.env.obs.items():
            if not _KEY.fullmatch(key) or key in _RESERVED:
                raise DataError(
                    f"Observation key '{key}' cannot be stored: it must be letters, digits, '_', '-' or '.', "
                    f"start with a letter and be none of {sorted(_RESERVED)}. Rename it in the EnvSpec."
                )
            if not all(_is_whole(size, 1) for size in spec.shape) or len(spec.shape) > _MOST_AXES:
                raise DataError(
                    f"Observation '{key}' has shape {tuple(spec.shape)}: at most {_MOST_AXES} axes of at "
                    "least 1 were expected."
                )
            if spec.dtype not in _DTYPES:
                raise DataError(
                    f"Observation '{key}' has type {spec.dtype}; the store knows {sorted(_DTYPES)}."
                )

    @property
    def jpeg_keys(self) -> tuple[str, ...]:
        """Cameras stored as JPEG, in the column order of `jpeg_ends`."""
        if self.image_codec == "raw":
            return ()
        return tuple(
            key
            for key, spec in self.env.obs.items()
            if key.startswith("image.")
            and spec.dtype == "uint8"
            and len(spec.shape) == 3
            and spec.shape[-1] == 3
        )

    def columns(self) -> tuple[Column, ...]:
        """Arrays of an episode, in the order in which a frame is written: large ones first, action last."""
        jpeg = self.jpeg_keys
        blobs = [Column(key, "uint8", (), "blob") for key in jpeg]
        ends = [Column(JPEG_ENDS, "int64", (len(jpeg),), "obs")] if jpeg else []
        obs = [Column(k, s.dtype, tuple(s.shape), "obs") for k, s in self.env.obs.items() if k not in jpeg]
        stamps = [Column(STAMPS, "int64", (len(self.stamps),), "step")] if self.stamps else []
        scalars = [
            Column("reward", "float32", (), "step"),
            Column("terminated", "bool", (), "step"),
            Column("intervention", "bool", (), "step"),
        ]
        action = Column("action", "float32", (self.env.action.dim,), "step")
        return (*blobs, *ends, *obs, *stamps, *scalars, action)

    def column(self, name: str) -> Column | None:
        """Column of this name; None if the dataset has none."""
        return next((column for column in self.columns() if column.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "env": self.env.to_json(),
            "image_codec": self.image_codec,
            "jpeg_quality": self.jpeg_quality,
            "stamps": list(self.stamps),
            "info": self.info,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DatasetMeta:
        """Output of `to_json`, parsed. Raises DataError or ConfigError for a value that no dataset has, and
        KeyError, TypeError, ValueError, AttributeError or OverflowError for another structure.
        """
        return cls(
            EnvSpec.from_json(data["env"]),
            _codec(data["image_codec"]),
            int(data["jpeg_quality"]),
            tuple(str(name) for name in data["stamps"]),
            dict(data["info"]),
        )

    @classmethod
    def load(cls, root: Path) -> DatasetMeta:
        """Parsed `root`/dataset.json. Raises DataError if it is absent, of another format or version, or
        broken.
        """
        path = root / DATASET_JSON
        if not path.exists():
            remedy = "Give the folder that `robo-rl collect` or `robo-rl data import` wrote."
            if is_importable(root):
                remedy = f"Import it first: robo-rl data import source={root} out=<new folder>"
            raise DataError(f"{not_a(root, 'a dataset', DATASET_JSON)} {remedy}")
        data = _read(path)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise DataError(
                f"{path} is not a dataset of this project (format '{FORMAT}' expected). Give the folder that "
                "`robo-rl collect` or `robo-rl data import` wrote."
            )
        if data.get("version") != VERSION:
            raise DataError(
                f"{path} has format version {data.get('version')}, this release reads version {VERSION}. "
                "Use the release that wrote it, or record it again."
            )
        try:
            return cls.from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ConfigError) as error:
            raise DataError(
                f"{path} is broken ({error!r}). Restore it from a copy of the dataset."
            ) from error


@dataclass(frozen=True, slots=True)
class ArrayMeta:
    """Shape, type and CRC-32C of the payload of one array."""

    dtype: str
    shape: tuple[int, ...]
    crc32c: int


@dataclass(frozen=True, slots=True)
class EpisodeMeta:
    """episode.json. frames: number of actions; final_obs: True if observations have one row more."""

    frames: int = 0
    final_obs: bool = False
    complete: bool = False
    success: bool | None = None
    task: str = ""
    seed: int | None = None
    operator: str = ""
    recorded_at: str = ""
    arrays: dict[str, ArrayMeta] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def rows(self, role: Role) -> int:
        """Rows of an `obs` or `step` array."""
        return self.frames + (role == "obs" and self.final_obs)

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        for array in data["arrays"].values():
            array["crc32c"] = f"{array['crc32c']:08x}"
        return data

    @classmethod
    def load(cls, path: Path) -> EpisodeMeta:
        """Parsed episode.json or recording.json. Raises DataError that names the file if it is absent or
        broken.
        """
        try:
            data = _read(path)
        except DataError as error:
            if not isinstance(error.__cause__, FileNotFoundError | ValueError | RecursionError):
                raise
            found = "does not exist" if isinstance(error.__cause__, OSError) else "is not valid JSON"
            raise DataError(
                f"{path} {found}, so this episode cannot be read. Restore it from a copy, or delete it: "
                + command("data repair", path=path.parents[2], drop=True)
            ) from error
        try:
            return cls(
                frames=_count(data, "frames"),
                final_obs=_flag(data, "final_obs"),
                complete=_flag(data, "complete"),
                success=None if data["success"] is None else _flag(data, "success"),
                task=str(data["task"]),
                seed=None if data["seed"] is None else _count(data, "seed"),
                operator=str(data["operator"]),
                recorded_at=str(data["recorded_at"]),
                arrays={name: _array(name, entry) for name, entry in data["arrays"].items()},
                info=dict(data["info"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path} is broken ({error!r}). Restore it, or delete the episode's directory."
            ) from error


def _flag(data: dict[str, Any], key: str) -> bool:
    """A boolean. Raises ValueError for anything else: bool("no") is True."""
    if not isinstance(value := data[key], bool):
        raise ValueError(f"{key} is {value!r}, true or false was expected")
    return value


def _count(data: dict[str, Any], key: str) -> int:
    """A whole number of at least 0. Raises ValueError for anything else."""
    if not _is_whole(value := data[key], 0):
        raise ValueError(f"{key} is {value!r}, a whole number of at least 0 was expected")
    return int(value)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _array(name: str, entry: Any) -> ArrayMeta:
    """Parsed entry of `arrays`. Raises ValueError for a type or shape that no array of the store has.

    A type such as "O" would make numpy follow pointers read from the file.
    """
    dtype, shape, crc = entry["dtype"], entry["shape"], entry["crc32c"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError(f"'{name}' has type {dtype!r}; the store knows {sorted(_DTYPES)}")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= _MOST_AXES
        or not all(_is_whole(n, 0) for n in shape)
    ):
        raise ValueError(f"'{name}' has shape {shape!r}, a list of whole numbers of at least 0 was expected")
    if not isinstance(crc, str) or not re.fullmatch("[0-9a-f]{8}", crc):
        raise ValueError(f"'{name}' has checksum {crc!r}, 8 hexadecimal digits were expected")
    return ArrayMeta(dtype, tuple(shape), int(crc, 16))


def _codec(name: str) -> Codec:
    if name == "raw":
        return "raw"
    if name == "jpeg":
        return "jpeg"
    raise DataError(f"Unknown image codec '{name}'. Known: raw, jpeg.")


def _read(path: Path) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}), though its data may be intact. Change its "
            "permissions, or check the disk."
        ) from error
