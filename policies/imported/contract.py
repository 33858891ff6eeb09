"""Contract of an imported policy: its observations under our names, its action space and rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from policies.imported.checkpoint import ACTION, CONFIG, STATE, LerobotCheckpoint
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.spec import ROBOT_SUITE, ActionSpec, ArraySpec, EnvSpec

_STEPS = 1000  # longest episode of a robot without an environment of ours


def observation_keys(read: LerobotCheckpoint, given: Sequence[str] = ()) -> dict[str, str]:
    """Our observation -> feature of the checkpoint. given: pairs "ours:feature", for names of an environment.

    Without a pair, `observation.state` is `state` and `observation.images.top` is `image.top`.
    """
    named: dict[str, str] = {}
    for pair in given:
        ours, _, feature = pair.partition(":")
        if feature not in read.inputs or not ours or ours in named or feature in named.values():
            raise ConfigError(
                f"keys={pair} cannot be used, expected: <observation>:<feature>, with each of "
                f"{', '.join(read.inputs)} once."
            )
        named[ours] = feature
    for feature in read.inputs:
        if feature not in named.values():
            named[_name_of(feature)] = feature
    if len(named) != len(read.inputs):
        raise ConfigError(f"Two features of {read.folder} would have one name; give keys=.")
    return dict(sorted(named.items(), key=lambda pair: list(read.inputs).index(pair[1])))


def imported_env(
    read: LerobotCheckpoint, keys: dict[str, str], env: EnvSpec | None, rate_hz: float | None
) -> EnvSpec:
    """Contract of the policy: that of `env` for these observations, or of a robot with this rate.

    Raises CheckpointError for an environment whose observations or actions the checkpoint does not fit.
    """
    arrays = {key: _array(read, feature) for key, feature in keys.items()}
    if env is None:
        if rate_hz is None:
            raise ConfigError(
                "A checkpoint of LeRobot does not hold its rate. Give rate_hz=<frames per second of its "
                "data>, or env=<environment of this project>."
            )
        return EnvSpec(f"{ROBOT_SUITE}/{_robot(read)}", arrays, _limits(read), _STEPS, rate_hz)
    for key, array in arrays.items():
        found = env.obs.get(key)
        if found is None or (found.shape, found.dtype) != (array.shape, array.dtype):
            offered = "nothing" if found is None else f"{found.dtype} {found.shape}"
            raise CheckpointError(
                f"{read.folder} reads {keys[key]} as {array.dtype} {array.shape}; {env.name} offers "
                f"{offered} as '{key}' (it has {', '.join(sorted(env.obs))}). Name them by "
                "keys=[<observation>:<feature>]."
            )
    if env.action.dim != read.action.shape[0] or len(read.action.shape) != 1:
        raise CheckpointError(
            f"{read.folder} has actions of shape {read.action.shape}, {env.name} of ({env.action.dim},). Use "
            "the environment that it was trained for."
        )
    return replace(env, obs={key: env.obs[key] for key in arrays})


def _name_of(feature: str) -> str:
    """Our name of a feature."""
    plain = feature.removeprefix("observation.")
    for prefix in ("images.", "image."):
        if plain.startswith(prefix):
            return f"image.{plain.removeprefix(prefix)}"
    return "image.camera" if plain == "image" else "state" if feature == STATE else plain


def _array(read: LerobotCheckpoint, feature: str) -> ArraySpec:
    """Array of an observation; pictures are (h, w, 3) uint8 here, (3, h, w) in [0, 1] there."""
    found = read.inputs[feature]
    if found.type != "VISUAL":
        return ArraySpec(found.shape)
    if len(found.shape) != 3 or found.shape[0] != 3:
        raise CheckpointError(
            f"{read.folder} has the picture '{feature}' as {found.shape}, expected (3, h, w)."
        )
    return ArraySpec((found.shape[1], found.shape[2], 3), "uint8")


def _limits(read: LerobotCheckpoint) -> ActionSpec:
    """The range of the actions in the data of the checkpoint."""
    known = read.statistics.get(ACTION, {})
    if not {"min", "max"} <= known.keys() or len(read.action.shape) != 1:
        raise CheckpointError(
            f"{read.folder} does not hold the range of its actions ({ACTION}.min, {ACTION}.max). Give "
            "env=<environment>, whose limits are then used."
        )
    low, high = (tuple(known[name].tolist()) for name in ("min", "max"))
    try:
        return ActionSpec(low, high)
    except ConfigError as error:
        raise CheckpointError(
            f"{read.folder} has an action that never moved in its data: {error} Give env=<environment>."
        ) from error


def _robot(read: LerobotCheckpoint) -> str:
    """Name of the robot: that of the checkpoint's folder."""
    name = read.folder.resolve().name
    return name if name != "pretrained_model" else read.folder.resolve().parent.name or CONFIG
