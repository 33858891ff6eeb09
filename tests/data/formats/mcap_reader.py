"""Values of recordings as mcap-ros2-support returns them; run in an environment with it:

<python of an environment with mcap-ros2-support> tests/data/formats/mcap_reader.py <folder> <file.npz>

Arrays have the names <episode>/<topic>, with one row per message; time in <episode>/time_ns/<topic>.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"rgb8": np.uint8, "mono8": np.uint8, "32FC1": np.float32}


def value(message: Any) -> Any:
    """Array of a message."""
    if hasattr(message, "encoding"):
        pixels = np.frombuffer(message.data, TYPES[message.encoding])
        return pixels.reshape(message.height, message.width, -1)
    if isinstance(message.data, str | bool):
        return message.data
    packed = isinstance(message.data, bytes)
    return np.frombuffer(message.data, np.uint8) if packed else np.array(message.data)


def main(folder: str, out: str) -> None:
    read = import_module("mcap_ros2.reader").read_ros2_messages
    found: dict[str, list[Any]] = {}
    for i, path in enumerate(sorted(Path(folder).glob("*/*.mcap"))):
        for message in read(path):
            topic = message.channel.topic
            found.setdefault(f"{i}{topic}", []).append(value(message.ros_msg))
            found.setdefault(f"{i}/time_ns{topic}", []).append(message.log_time_ns)
    arrays: dict[str, Any] = {name: np.stack(rows) for name, rows in found.items()}
    np.savez(out, version=version("mcap-ros2-support"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
