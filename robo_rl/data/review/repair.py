"""Repair of a dataset: what follows from intact data is written anew, the rest is refused with its reason.

Repaired are interrupted edits and recordings, missing folders, zarr.json of arrays, episodes and the
dataset, and the index behind an array's rows. Rows that were cut or changed cannot be restored; `drop`
deletes their episodes. Both is done in a copy that replaces the dataset, so `undo` of `robo-rl data
edit` restores the former state.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robo_rl.core.files.durable import write_json
from robo_rl.core.text.counts import counted
from robo_rl.data.checks import Fault
from robo_rl.data.edit.swap import edited_copy, finish
from robo_rl.data.episodes.commit import write_json_file
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.recover import leftovers, recover
from robo_rl.data.episodes.schema import EPISODES, STAGING, ZARR_JSON, DatasetMeta
from robo_rl.data.episodes.shard import (
    payload_bytes,
    shard_name,
    tail_bytes,
    zarr_array_json,
    zarr_group_json,
)
from robo_rl.data.validate import validate

FIXABLE = frozenset({"broken_zarr_json", "bad_index"})
_GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
Progress = Callable[[int, int], None] | None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was done, or would be, and the faults that remain. dropped: numbers of deleted episodes."""

    done: tuple[str, ...]
    dropped: tuple[int, ...]
    refused: tuple[Fault, ...]
    dry_run: bool


def repair(
    path: str | Path, *, drop: bool = False, dry_run: bool = False, progress: Progress = None
) -> RepairReport:
    """Repair a dataset. drop: delete the episodes that cannot be repaired.

    Raises DataError if `path` is no dataset, LockedError while it is written.
    """
    root = Path(path).resolve() if dry_run else finish(path)
    dataset = DatasetMeta.load(root)
    done = _folders(root, dry_run)
    if (root / STAGING).is_dir() and (waiting := leftovers(root)):
        done.append(f"{counted(len(waiting), 'interrupted episode')} recovered")
        if not dry_run:
            recover(root)
    if dry_run and not (root / EPISODES).is_dir():
        return RepairReport(tuple(done), (), (), dry_run)
    errors = [fault for fault in validate(root, progress) if fault.severity == "error"]
    broken = {fault.episode for fault in errors if fault.episode is not None}
    lost = {f.episode for f in errors if f.episode is not None and f.kind not in FIXABLE}
    fixed = sorted(number for number in broken - lost if number is not None)
    dropped = sorted(number for number in lost if number is not None) if drop else []
    done += [f"the zarr metadata of episode {number} written anew" for number in fixed]
    done += [f"episode {number} deleted" for number in dropped]
    if (fixed or dropped) and not dry_run:
        with edited_copy(root, {"edit": "repair", "episodes": fixed, "deleted": dropped}) as copy:
            for number in fixed:
                _rewrite(Episode(copy / EPISODES / f"{number:06d}", dataset))
            for number in dropped:
                shutil.rmtree(copy / EPISODES / f"{number:06d}")
    settled = set(fixed) | set(dropped)
    refused = tuple(fault for fault in errors if fault.episode not in settled)
    return RepairReport(tuple(done), tuple(dropped), refused, dry_run)


def _folders(root: Path, dry_run: bool) -> list[str]:
    """Restore folders and the group's zarr.json, which a copy or a version control may have left out."""
    done = []
    for folder in (EPISODES, STAGING):
        if not (root / folder).exists():
            done.append(f"the empty folder {folder}/ made")
            if not dry_run:
                (root / folder).mkdir()
    if not (root / EPISODES / ZARR_JSON).is_file():
        done.append(f"{EPISODES}/{ZARR_JSON} written")
        if not dry_run:
            write_json(root / EPISODES / ZARR_JSON, _GROUP)
    return done


def _rewrite(episode: Episode) -> None:
    """Write zarr.json and index of every array anew. Their rows have the right checksum."""
    for name in episode.meta.arrays:
        array = episode.array_meta(name)
        folder = episode.path / name
        shard = folder / shard_name(len(array.shape))
        whole = shard.with_suffix(".whole")
        with shard.open("rb") as source, whole.open("wb") as target:
            left = payload_bytes(array)
            while left and (block := source.read(min(left, 1 << 22))):
                target.write(block)
                left -= len(block)
            target.write(tail_bytes(array))
        whole.replace(shard)  # not in place: the former state shares the file
        (folder / ZARR_JSON).unlink(missing_ok=True)
        write_json_file(folder / ZARR_JSON, zarr_array_json(array))
    (episode.path / ZARR_JSON).unlink(missing_ok=True)
    write_json_file(episode.path / ZARR_JSON, zarr_group_json(episode.meta.arrays))
