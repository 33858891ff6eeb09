"""Formats of other programs: which can be written, which can be read, and how a source is recognised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from robo_rl.core.errors import UnknownNameError

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Format:
    """One format. writer, reader, description: "module:function" below robo_rl.data.formats; empty: none.

    loses: what other programs do not find in an export; `data import` finds everything that is written.
    """

    writer: str
    reader: str
    description: str
    what: str
    loses: str


FORMATS = {
    "lerobot": Format(
        "lerobot.writer:export_lerobot",
        "lerobot.reader:import_lerobot",
        "lerobot.reader:describe_lerobot",
        "LeRobotDataset v3: parquet tables and MP4 files",
        "the observation after the last action, seed, operator, limits and units are left out, an unknown "
        "success is false, and images in MP4 change by a few grey levels (images=png: not at all)",
    ),
    "zarr": Format(
        "replay_buffer:export_replay_buffer",
        "replay_buffer:import_exported",
        "",
        "zarr v2 replay buffer, as of Diffusion Policy",
        "labels, instructions, the observation after the last action, interventions, stamps, rate, limits "
        "and units are left out",
    ),
    "robomimic": Format(
        "robomimic:export_robomimic",
        "robomimic:import_robomimic",
        "robomimic:describe_robomimic",
        "robomimic: one HDF5 file",
        "instructions, the observation after the last action, interventions, stamps, seed, operator and "
        "units are left out",
    ),
    "rlds": Format(
        "rlds.writer:export_rlds",
        "rlds.reader:import_rlds",
        "rlds.reader:describe_rlds",
        "RLDS: TFRecord shards of TensorFlow Datasets",
        "stamps, seed, operator, limits and units are left out; float64 becomes float32",
    ),
    "mcap": Format(
        "bags:export_mcap",
        "bags:import_mcap",
        "",
        "MCAP recordings, one per episode",
        "seed, operator, limits and units are left out",
    ),
    "rerun": Format(
        "rerun_log:export_rerun",
        "",
        "",
        "Rerun: one .rrd per episode, for looking",
        "seed, operator, stamps, limits and units are left out; images become JPEG, and numbers float64, "
        "which rounds whole numbers above 2^53; no program imports it",
    ),
}


def load_part(name: str, part: str) -> Callable[..., Any]:
    """The function `part` ("writer", "reader", "description") of a format. Raises UnknownNameError."""
    usable = {key: each for key, each in FORMATS.items() if getattr(each, part)}
    if name not in usable:
        raise UnknownNameError("format", name, usable)
    module, function = getattr(usable[name], part).split(":")
    found: Callable[..., Any] = getattr(import_module(f"robo_rl.data.formats.{module}"), function)
    return found


def recognised(source: Path) -> str | None:
    """Format of a foreign source, by its files; None for recordings, replay buffers and anything else."""
    if (source / "meta" / "info.json").is_file():
        return "lerobot"
    if any(path.is_file() for path in (source / "features.json", *source.glob("*/features.json"))):
        return "rlds"
    if (source / "robo_rl.json").is_file() and any(source.glob("*/*.mcap")):
        return "mcap"
    if source.is_file() and (source.suffix in (".hdf5", ".h5") or _is_hdf5(source)):
        return "robomimic"
    return None


def _is_hdf5(source: Path) -> bool:
    """True for a file that begins as HDF5 does, whatever its name."""
    with source.open("rb") as file:
        return file.read(len(HDF5_SIGNATURE)) == HDF5_SIGNATURE
