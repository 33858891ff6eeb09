"""Checksums of the files of a checkpoint, to detect damage before a run resumes."""

from __future__ import annotations

import zlib
from pathlib import Path

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_json, write_json

CHECKSUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write the CRC-32 of every file below `folder` into checksums.json there."""
    write_json(folder / CHECKSUMS, _checksums(folder))


def _checksums(folder: Path) -> dict[str, str]:
    """CRC-32 of every file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): f"{_crc32(path):08x}" for path in paths}


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            crc = zlib.crc32(block, crc)
    return crc


def damage(folder: Path) -> str:
    """Damage of a checkpoint's files in words; empty if all files match their checksums."""
    try:
        expected, found = read_json(folder / CHECKSUMS), _checksums(folder)
    except (DataError, OSError) as error:
        return str(error).rstrip(".")
    found.pop(CHECKSUMS, None)
    if not isinstance(expected, dict):
        return f"{CHECKSUMS} holds no checksums"
    changed = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    return f"{', '.join(changed)} changed or missing" if changed else ""
