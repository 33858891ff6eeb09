"""Values of a LeRobotDataset as LeRobot's own reader returns them; run in an environment with lerobot:

<python of an environment with lerobot> tests/data/formats/lerobot_reader.py <folder> <file.npz>
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np


def main(folder: str, out: str) -> None:
    made = import_module("lerobot.datasets.lerobot_dataset").LeRobotDataset
    data = made("local/test", root=folder, video_backend="pyav")
    rows: list[dict[str, Any]] = [data[i] for i in range(len(data))]
    columns: dict[str, Any] = {key: np.stack([np.asarray(row[key]) for row in rows]) for key in rows[0]}
    np.savez(out, fps=data.fps, episodes=data.num_episodes, **columns)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
