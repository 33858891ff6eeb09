"""Measured success of a policy, stored with its weights; `export` writes it into the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from policies.checkpoint import read_policy_json
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.eval.rollout import EvalResult

EVALUATION_FILE = "evaluation.json"


def success_note(result: EvalResult, env: str, eval_seed: int, noise: float) -> dict[str, Any]:
    """Success, or the mean return where the environment reports none, with the settings that reproduce the
    measurement. noise: scale of the noise.
    """
    rate = result.known_rate
    found: dict[str, Any]
    if rate is None:
        found = {"mean_return": result.mean_return, "n": len(result.seeds), "reports_success": False}
    else:
        found = {"k": rate.k, "n": rate.n, "wilson95": list(rate.wilson())}
    return found | {
        "env": env,
        "eval_seed": eval_seed,
        "noise": noise,
        "machine": machine(),
        "commit": commit(),
    }


def write_success_note(folder: Path, note: dict[str, Any]) -> None:
    """Write the note into `folder`, with the checksum of the policy's weights."""
    write_json(
        folder / EVALUATION_FILE, note | {"weights_crc32": int(read_policy_json(folder)["weights_crc32"])}
    )


def read_success_note(folder: Path) -> dict[str, Any] | None:
    """The note if it belongs to these weights, else None."""
    path = folder / EVALUATION_FILE
    if not path.is_file():
        return None
    noted = dict(read_json(path))
    return noted if noted.pop("weights_crc32", None) == read_policy_json(folder)["weights_crc32"] else None
