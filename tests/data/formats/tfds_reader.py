"""Values of an RLDS folder as TensorFlow Datasets returns them; run in an environment with it and TensorFlow:

<python of an environment with tensorflow_datasets> tests/data/formats/tfds_reader.py <folder> <file.npz>

Arrays have the names <episode>/<feature>, with one row per step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{name}/{key}")
    else:
        yield name, value.decode() if isinstance(value, bytes) else value


def main(folder: str, out: str) -> None:
    tfds = import_module("tensorflow_datasets")
    found: dict[str, Any] = {}
    builder = tfds.builder_from_directory(folder)
    for i, episode in enumerate(tfds.as_numpy(builder.as_dataset(split="train", shuffle_files=False))):
        steps = [dict(leaves(step, f"{i}/steps")) for step in episode["steps"]]
        found |= {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        found |= dict(leaves(episode["episode_metadata"], f"{i}/episode_metadata"))
    np.savez(out, version=tfds.__version__, **found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
