"""`robo-rl data import` of datasets that other programs wrote: LeRobot, robomimic, RLDS and the like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from robo_rl.apps.imports.import_report import report_import
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.counts import counted
from robo_rl.data.formats.contract import ForeignSpec, inferred, unknown_rate
from robo_rl.data.formats.lerobot.layout import LeRobotInfo
from robo_rl.data.formats.registry import FORMATS, load_part
from robo_rl.data.formats.rlds.reader import rlds_splits
from robo_rl.runs.progress import progress_callback

SAME_RATE = 0.01  # fraction by which rate_hz may differ from a rate that the source states, as 30 from 29.97


def import_foreign(config: DataImportConfig, kind: str, keys: Mapping[str, str]) -> int:
    """Import a source of this format, and print the number of episodes and the next command.

    Without env=, robot= and keys=, an export of ours is imported exactly; of other sources the contract is
    inferred.
    """
    if config.env is not None and config.robot is not None:
        raise ConfigError("Give env= or robot=, not both: each of them states the contract.")
    part = {"split": config.split} if kind == "rlds" else {}
    notes: list[str] = []
    env = None
    if config.env or config.robot or config.rate_hz:
        if not FORMATS[kind].description:
            raise ConfigError(
                f"env=, robot= and rate_hz= do not apply to {config.source}: it has a contract."
            )
        env = _contract(config, load_part(kind, "description")(config.source, keys, **part), notes)
    options: dict[str, Any] = {}
    if kind not in ("zarr", "mcap"):
        options = {"env": env, "keys": keys, "task": config.task, "notes": notes}
    with progress_callback("import", "episode") as advance:
        count = load_part(kind, "reader")(
            config.source, config.out, limit=config.limit, image_codec=config.image_codec,
            progress=advance, **options, **part,
        )  # fmt: skip
    others = [name for name in rlds_splits(config.source) if name != config.split] if part else []
    left_out = f"; left out: split={', split='.join(others)}" if others else ""
    what = f"{counted(count, 'episode')} ({_format_name(config, kind)})"
    report_import(config, what, left_out, notes)
    return 0


def _format_name(config: DataImportConfig, kind: str) -> str:
    """Format of the source, with the version that a LeRobot dataset states."""
    if kind == "lerobot":
        return f"LeRobotDataset {LeRobotInfo.load(Path(config.source)).version}"
    return FORMATS[kind].what.partition(":")[0]


def source_rate(config: DataImportConfig, stated_hz: float | None) -> float | None:
    """Rate of the frames [Hz]: the one that the source states, or rate_hz=; None if neither is known.

    Raises ConfigError if they differ.
    """
    if config.rate_hz and stated_hz and not math.isclose(config.rate_hz, stated_hz, rel_tol=SAME_RATE):
        raise ConfigError(
            f"{config.source} states {stated_hz:g} Hz, and its frames are imported one by one: "
            f"rate_hz={config.rate_hz:g} would change the speed of every motion. Leave it out, or "
            f"resample the source to {config.rate_hz:g} Hz."
        )
    return config.rate_hz or stated_hz


def require_rate(config: DataImportConfig, rate_hz: float | None, env: EnvSpec) -> None:
    """Raise ConfigError if the frames have another rate than the environment. rate_hz: None if unknown."""
    if rate_hz is not None and not math.isclose(rate_hz, env.control_hz, rel_tol=SAME_RATE):
        raise ConfigError(
            f"{config.source} has {rate_hz:g} Hz, but {env.name} has {env.control_hz:g} Hz: its frames are "
            "imported one by one, so every motion would change its speed. Leave env= out to keep the rate, "
            f"give robot=, or resample the source to {env.control_hz:g} Hz."
        )


def assumed_rate(of: str, spec: EnvSpec) -> str:
    """Sentence on a rate that the source does not state. of: what has this rate."""
    return f"The source states no rate. That of {of} was taken for it: {spec.control_hz:g} Hz."


def _contract(config: DataImportConfig, foreign: ForeignSpec, notes: list[str]) -> EnvSpec:
    """Contract of env= or robot=, or inferred. notes: gets a sentence on a rate that is taken from env=."""
    foreign = replace(foreign, rate_hz=source_rate(config, foreign.rate_hz))
    if config.env is not None:
        from sim.registry import make_env  # only these imports need a simulator

        with closing(make_env(config.env, 1)) as made:
            spec = made.spec
        require_rate(config, foreign.rate_hz, spec)
        if foreign.rate_hz is None:
            notes.append(assumed_rate(spec.name, spec))
        return spec
    if config.robot is None:
        return inferred(foreign, notes)
    if foreign.rate_hz is None:  # the rate of the robot's commands is only the highest that is possible
        raise ConfigError(unknown_rate(config.source))
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
