"""`robo-rl data import` of datasets that other programs wrote: LeRobot, robomimic, RLDS and the like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from robo_rl.apps.imports.import_report import report_import
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.counts import counted
from robo_rl.data.formats.contract import ForeignSpec, inferred
from robo_rl.data.formats.registry import FORMATS, load_part
from robo_rl.data.formats.rlds.reader import rlds_splits
from robo_rl.runs.progress import progress, show

SAME_RATE = 0.01  # fraction by which rate_hz may differ from a rate that the source states, as 30 from 29.97


def import_foreign(config: DataImportConfig, kind: str, keys: Mapping[str, str]) -> int:
    """Import a source of this format, and print the number of episodes and the next command.

    Without env=, robot= and keys=, an export of ours is imported exactly; of other sources the contract is
    inferred.
    """
    if config.env is not None and config.robot is not None:
        raise ConfigError("Give env= or robot=, not both: each of them states the contract.")
    part = {"split": config.split} if kind == "rlds" else {}
    env = None
    if config.env or config.robot or config.rate_hz:
        if not FORMATS[kind].description:
            raise ConfigError(
                f"env=, robot= and rate_hz= do not apply to {config.source}: it has a contract."
            )
        env = _contract(config, load_part(kind, "description")(config.source, keys, **part))
    notes: list[str] = []
    options: dict[str, Any] = {}
    if kind not in ("zarr", "mcap"):
        options = {"env": env, "keys": keys, "task": config.task, "notes": notes}
    with progress(None, "import", "episode") as bar:
        count = load_part(kind, "reader")(
            config.source, config.out, limit=config.limit, image_codec=config.image_codec,
            progress=show(bar), **options, **part,
        )  # fmt: skip
    others = [name for name in rlds_splits(config.source) if name != config.split] if part else []
    left_out = f"; left out: split={', split='.join(others)}" if others else ""
    what = f"{counted(count, 'episode')} ({FORMATS[kind].what.partition(':')[0]})"
    report_import(config, what, left_out, notes)
    return 0


def _contract(config: DataImportConfig, foreign: ForeignSpec) -> EnvSpec:
    if config.rate_hz:
        if foreign.states_rate and not math.isclose(config.rate_hz, foreign.rate_hz, rel_tol=SAME_RATE):
            raise ConfigError(
                f"{config.source} states {foreign.rate_hz:g} Hz, and its frames are imported one by one: "
                f"rate_hz={config.rate_hz:g} would change the speed of every motion. Leave it out."
            )
        foreign = replace(foreign, rate_hz=config.rate_hz)
    if config.env is not None:
        from sim.registry import make_env  # only these imports need a simulator

        with closing(make_env(config.env, 1)) as made:
            return made.spec
    if config.robot is None:
        return inferred(foreign)
    from hardware.description import load_description
    from hardware.layout import parse_unit
    from robo_rl.apps.imports.recordings_layout import robot_spec

    robot = load_description(config.robot)
    pictures = [key for key in foreign.obs if key.startswith(("image.", "depth."))]
    velocities = config.velocities
    if velocities is None:
        goal = sum(len(segment.names) for segment in parse_unit(config.goal)) if config.goal else 0
        width = foreign.obs.get("state", ((0,), ""))[0]
        velocities = bool(width) and width[-1] - goal == 2 * len(robot.names)
    spec = robot_spec(robot, pictures, config.image_width, velocities, config.goal, foreign.rate_hz)
    _refuse_other_names(config, spec, foreign)
    return replace(spec, max_episode_steps=max(1, foreign.longest))


def _refuse_other_names(config: DataImportConfig, spec: EnvSpec, foreign: ForeignSpec) -> None:
    """Raise ConfigError if the source has other observations than the robot."""
    if missing := sorted(spec.obs.keys() - foreign.obs.keys()):
        raise ConfigError(
            f"{config.source} has no observation {missing[0]}, which robot={config.robot} needs; it has "
            f"{sorted(foreign.obs)}. Map one in keys=, e.g. keys=['{missing[0]}:observation.state']."
        )
