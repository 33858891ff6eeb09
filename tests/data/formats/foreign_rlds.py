"""An RLDS export without what only our exports hold, as another program would have written it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from robo_rl.data.formats.rlds.records import (
    Value,
    decode_example,
    encode_example,
    read_records,
    write_record,
)


def make_foreign(folder: Path, change: Callable[[dict[str, Value]], object] | None = None) -> Path:
    """The folder of an export, whose records have lost our arrays. change: edits each record."""
    (folder / "robo_rl.json").unlink()
    for shard in folder.glob("*.tfrecord*"):
        examples = [decode_example(data, str(shard)) for data in read_records(shard)]
        with shard.open("wb") as file:
            for example in examples:
                kept = {name: value for name, value in example.items() if not name.startswith("robo_rl/")}
                if change is not None:
                    change(kept)
                write_record(file, encode_example(kept))
    return folder
