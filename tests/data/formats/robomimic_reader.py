"""Values of an HDF5 file as robomimic's own dataset returns them; run in an environment with robomimic:

<python of an environment with robomimic> tests/data/formats/robomimic_reader.py <file.hdf5> <file.npz>

Arrays have the names <episode>/<key>, with one row per frame.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

import h5py
import numpy as np


def main(source: str, out: str) -> None:
    with h5py.File(source) as file:
        keys = sorted(file["data/demo_0/obs"])
        lengths = [len(file[f"data/demo_{i}/actions"]) for i in range(len(file["data"]))]
    pictures = [key for key in keys if key.endswith("_image")]
    others = [key for key in keys if key not in pictures]
    import_module("robomimic.utils.obs_utils").initialize_obs_utils_with_obs_specs(
        {"obs": {"low_dim": others, "rgb": pictures}}
    )
    data = import_module("robomimic.utils.dataset").SequenceDataset(
        source,
        obs_keys=keys,
        dataset_keys=("actions", "rewards", "dones"),
        hdf5_cache_mode=None,
        hdf5_use_swmr=False,
        load_next_obs=False,
    )
    rows: list[dict[str, Any]] = [data[i] for i in range(len(data))]
    found: dict[str, Any] = {}
    for i, end in enumerate(np.cumsum(lengths)):
        part = rows[end - lengths[i] : end]
        found |= {f"{i}/obs/{key}": np.stack([row["obs"][key][0] for row in part]) for key in keys}
        names = ("actions", "rewards", "dones")
        found |= {f"{i}/{name}": np.stack([row[name][0] for row in part]) for name in names}
    np.savez(out, version=version("robomimic"), **found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
