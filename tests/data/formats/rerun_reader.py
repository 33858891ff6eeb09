"""Values of an .rrd file as Rerun's own reader of chunks returns them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

TIMES = ("frame", "time")


def read_rrd(path: Path) -> dict[str, dict[str, list[Any]]]:
    """Rows by entity, in order of frames; columns are the timelines and Rerun's components.

    A cell is a list with the values of one row. Static entities have one row and no timeline.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for chunk in import_module("rerun.chunk").RrdReader(str(path)).stream().to_chunks():
        batch = chunk.to_record_batch()
        entity = found.setdefault(chunk.entity_path, {})
        for name in batch.schema.names:
            if name in TIMES or ":" in name:
                entity.setdefault(name, []).extend(batch.column(name).to_pylist())
    for entity in found.values():
        if "frame" in entity:
            order = sorted(range(len(entity["frame"])), key=entity["frame"].__getitem__)
            entity.update({name: [column[i] for i in order] for name, column in entity.items()})
    return found
