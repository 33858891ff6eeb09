"""Observations after the last action of our exports, in a table beside the LeRobot dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.schema import EpisodeMeta
from robo_rl.data.formats.lerobot import layout
from robo_rl.data.formats.lerobot.tables import read_table
from robo_rl.data.formats.pictures import decode_picture


def read_final(
    root: Path, env: EnvSpec, names: Mapping[str, str], labels: list[EpisodeMeta]
) -> dict[int, dict[str, Shaped[ndarray, "..."]]]:
    """Observation after the last action, by episode. Raises DataError for an episode that lacks its own.

    env: contract of the export. names: observation -> feature. labels: of the export.
    """
    if not any(label.final_obs for label in labels):
        return {}
    found: dict[int, dict[str, Shaped[ndarray, "..."]]] = {}
    for row in read_table(root / layout.FINAL, None).to_pylist():
        last = {}
        for key, name in names.items():
            spec, data = env.obs[key], bytes(row[name])
            if name.startswith(layout.IMAGES):
                last[key] = decode_picture(data, tuple(spec.shape), f"{root / layout.FINAL}: '{name}'")
            else:
                last[key] = np.frombuffer(data, dtype=spec.dtype).reshape(spec.shape)
        found[row["episode_index"]] = last
    if missing := [i for i, label in enumerate(labels) if label.final_obs and i not in found]:
        raise DataError(f"{root / layout.FINAL} lacks the episodes {missing[:5]}. Export the dataset again.")
    return found


def known_final(
    root: Path, env: EnvSpec, names: Mapping[str, str], labels: list[EpisodeMeta]
) -> dict[int, dict[str, Shaped[ndarray, "..."]]]:
    """`read_final` with other names of the observations; empty if the table lacks one of them."""
    keys = {layout.feature_name(key, spec): key for key, spec in env.obs.items()}
    if not (root / layout.FINAL).is_file() or not keys.keys() >= set(names.values()):
        return {}
    found = read_final(root, env, {keys[name]: name for name in names.values()}, labels)
    return {i: {key: last[keys[name]] for key, name in names.items()} for i, last in found.items()}
