"""Checksums of the files of a checkpoint, to detect damage before a run resumes."""

from __future__ import annotations

import zlib
from pathlib import Path

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_json, write_json

CHECKSUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write the CRC-32 of every file below `folder` into checksums.json there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    write_json(folder / CHECKSUMS, {path.relative_to(folder).as_posix(): _crc32(path) for path in paths})


def _crc32(path: Path) -> str:
    """CRC-32 of a file in hexadecimal digits."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def damage(folder: Path) -> str:
    """Damage of a checkpoint's files in words; empty if all files match their checksums.

    Files without a checksum are not part of the training state, and are no damage.
    """
    try:
        expected = read_json(folder / CHECKSUMS)
        if not isinstance(expected, dict) or not expected:
            return f"{CHECKSUMS} holds no checksums"
        paths = {name: folder / name for name in sorted(expected)}
        changed = [
            name for name, path in paths.items() if not path.is_file() or _crc32(path) != expected[name]
        ]
    except (DataError, OSError) as error:
        return str(error).rstrip(".")
    return f"{', '.join(changed)} changed or missing" if changed else ""
