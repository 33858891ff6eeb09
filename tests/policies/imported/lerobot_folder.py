"""The diffusion checkpoint of `reference/diffusion.json`, rebuilt without LeRobot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.policies.imported.lerobot_reference import statistics, weights

REFERENCE: dict[str, Any] = json.loads((Path(__file__).parent / "reference" / "diffusion.json").read_text())


def checkpoint(folder: Path) -> Path:
    """Write the checkpoint as LeRobot 0.4.4 lays it out."""
    folder.mkdir(parents=True)
    for name, content in REFERENCE["files"].items():
        (folder / name).write_text(json.dumps(content))
    save_file({key: torch.from_numpy(array) for key, array in weights(REFERENCE["shapes"]).items()},
              folder / "model.safetensors")  # fmt: skip
    flat = {
        f"{key}.{name}": torch.tensor(value)
        for key, entry in statistics(image=False).items()
        for name, value in entry.items()
    }
    for name in ("policy_preprocessor", "policy_postprocessor"):
        save_file(flat, folder / state_file(name))
    return folder


def state_file(processor: str) -> str:
    """File with the statistics of a processor."""
    steps = REFERENCE["files"][f"{processor}.json"]["steps"]
    return next(step["state_file"] for step in steps if "state_file" in step)
