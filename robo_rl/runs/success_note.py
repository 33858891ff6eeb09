"""Measured success of a policy, stored with its weights; `export` writes it into the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policies.checkpoint import read_policy_json
from robo_rl.core.files.durable import json_number, read_json, write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.core.text.counts import counted
from robo_rl.eval.rollout import EvalResult
from robo_rl.runs.run_dir import POLICIES, checkpoint_of
from sim.env_names import same_env

EVALUATION_FILE, EVALUATIONS = "evaluation.json", "evaluations"


def note_path(folder: Path) -> Path:
    """File of the note on the policy in `folder`.

    It lies with the weights. Nothing is written into a checkpoint: its note is <run>/evaluations/<step>.json,
    and <step>-<name>.json for a policy in its policies/<name>.
    """
    if (of := checkpoint_of(folder)) is None:
        return folder / EVALUATION_FILE
    run, step = of
    name = f"-{folder.name}" if folder.parent.name == POLICIES else ""
    return run / EVALUATIONS / f"{step}{name}.json"


def success_note(result: EvalResult, env: str, eval_seed: int, noise: float) -> dict[str, Any]:
    """Success, or the mean return where the environment reports none, with the settings that reproduce the
    measurement; None for a mean that is not finite. noise: scale of the noise.
    """
    rate = result.known_rate
    found: dict[str, Any]
    if rate is None:
        found = {"mean_return": json_number(result.mean_return), "n": len(result.seeds)}
        found["reports_success"] = False
    else:
        found = {"k": rate.k, "n": rate.n, "wilson95": list(rate.wilson())}
    return found | {
        "env": env,
        "eval_seed": eval_seed,
        "noise": noise,
        "machine": machine(),
        "commit": commit(),
    }


def conditions(env: str, eval_seed: int, noise: float, max_episode_steps: int | None) -> dict[str, Any]:
    """How the policies of a results.json were measured. noise: scale of the noise. max_episode_steps: limit
    that was set, in steps; None: the environment's own.
    """
    return {"env": env, "eval_seed": eval_seed, "noise": noise, "max_episode_steps": max_episode_steps}


def measured_elsewhere(results: Mapping[str, Any], env: str) -> str:
    """Name of the environment of a results.json, with a step limit that was set, if it is not `env` with its
    own limit; else empty. The order of the options in a name does not matter.
    """
    measured, limit = results.get("env", env), results.get("max_episode_steps")
    if limit is not None:
        return f"{measured}, at most {counted(limit, 'step')} per episode"
    return "" if same_env(str(measured), env) else str(measured)


def write_success_note(folder: Path, note: dict[str, Any]) -> None:
    """Write the note on the policy in `folder`, with the checksum of its weights."""
    path = note_path(folder)
    path.parent.mkdir(exist_ok=True)
    write_json(path, note | {"weights_crc32": int(read_policy_json(folder)["weights_crc32"])})


def read_success_note(folder: Path) -> dict[str, Any] | None:
    """The note if it belongs to these weights, else None."""
    path = note_path(folder)
    if not path.is_file():
        return None
    noted = dict(read_json(path))
    return noted if noted.pop("weights_crc32", None) == read_policy_json(folder)["weights_crc32"] else None
