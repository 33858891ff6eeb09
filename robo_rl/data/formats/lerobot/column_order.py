"""Order of the numbers of states and actions: by their names, where dataset and contract name the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from robo_rl.core.spec import EnvSpec
from robo_rl.data.formats.lerobot.layout import LeRobotFeature, number_names
from robo_rl.data.formats.rows import EpisodeRows

_SUFFIXES = {".pos": "", " [rad]": "", " [rad/s]": ".vel"}  # LeRobot names joint positions `elbow.pos`


def column_order(
    env: EnvSpec, names: Mapping[str, str], features: Mapping[str, LeRobotFeature], notes: list[str]
) -> dict[str, list[int]]:
    """Column of the dataset for each number of the contract, by observation and for "action".

    Holds only arrays whose columns have another order. names: observation -> feature. notes: gets a sentence
    on each array that is reordered, and on each whose names differ, so that its columns stay.
    """
    found = {}
    contract = {key: (spec.unit, tuple(spec.shape)) for key, spec in env.obs.items()}
    contract["action"] = env.action.unit, (env.action.dim,)
    for key, (unit, shape) in contract.items():
        wanted, feature = number_names(unit, shape), features.get(names.get(key, key))
        if not wanted or feature is None or feature.shape != shape:
            continue
        order = _order(wanted, feature.names)
        if order is None:
            stated = f"names them {', '.join(feature.names)}" if feature.names else "does not name them"
            notes.append(
                f"The numbers of '{key}' are taken by position: the dataset {stated}, and {env.name} has "
                f"{', '.join(wanted)}."
            )
        elif order != sorted(order):
            found[key] = order
            notes.append(f"The numbers of '{key}' were put in the order of {env.name}, by their names.")
    return found


def ordered(rows: EpisodeRows, order: Mapping[str, list[int]]) -> EpisodeRows:
    """`rows` with the columns in this order."""
    obs = {key: values[:, order[key]] if key in order else values for key, values in rows.obs.items()}
    action = rows.action[:, order["action"]] if "action" in order else rows.action
    return replace(rows, obs=obs, action=action)


def _order(wanted: Sequence[str], stated: Sequence[str]) -> list[int] | None:
    """Position of each wanted name among the stated ones; None if they are not the same names, each once."""
    left, right = [_plain(name) for name in wanted], [_plain(name) for name in stated]
    if sorted(left) != sorted(right) or len(set(left)) < len(left):
        return None
    return [right.index(name) for name in left]


def _plain(name: str) -> str:
    for suffix, plain in _SUFFIXES.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix) + plain
    return name
