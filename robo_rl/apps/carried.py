"""A flying policy that is taken elsewhere, from a run or a bundle, with the settings that it was trained with."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from policies.bundle import MANIFEST, load_bundle
from policies.checkpoint import load_policy, read_policy_json
from policies.registry import SavedPolicy
from robo_rl.apps.acting import find_policy
from robo_rl.apps.run_dir import RunDir
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import CheckpointError, ConfigError


def carried_policy(config: TransferConfig, verb: str) -> tuple[Path, Path, SavedPolicy]:
    """(what was given, the policy's folder, the policy), from a run, one of its policy folders, or a bundle.

    verb: the one that trained it. Raises ConfigError where not exactly one of `run` and `bundle` is given.
    """
    if (config.run is None) == (config.bundle is None):
        raise ConfigError(f"Give either run=<folder of robo-rl {verb}> or bundle=<folder>, and not both.")
    given = Path(config.run or config.bundle or "")
    folder = find_policy(given)
    if (folder / MANIFEST).is_file():
        load_bundle(folder)  # checks every file against the manifest
    return given, folder, load_policy(folder)


def trained_settings(given: Path, folder: Path, schema: type[Any], verb: str) -> Any:
    """Settings of the run that the policy lies in; of a bundle that was moved away, those that it carries itself.

    schema: the verb's dataclass, of which one is returned. Raises CheckpointError where nothing tells them.
    """
    for place in (given, folder, folder.parent):
        if (place / "config.yaml").is_file():
            saved = RunDir(place).config()
            break
    else:
        saved = read_policy_json(folder)["train"].get("settings")
    if saved is None:
        raise CheckpointError(f"{folder} does not tell how it was trained. Give run=<the folder of robo-rl {verb}>.")
    known = {item.name for item in fields(schema)}
    return schema(**{key: value for key, value in saved.items() if key in known})
