"""`robo-rl data import` of recordings: what a human did with the robot becomes what a policy learns from.

Observation and action have the layout that `robo-rl contract` compares with the robot's description, so a
policy that was trained on them can be deployed on it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hardware.bus.dds.cdr import ros_types
from hardware.description import RobotDescription, load_description
from hardware.loop.observation import ArmObserver
from hardware.recording.bag_reader import Bag, find_bags
from hardware.recording.frames import FrameRules, Plan, plan_frames, shown
from hardware.recording.streams import Streams, read_streams
from robo_rl.apps.record.recordings_layout import RecordingLayout, layout_of, survey
from robo_rl.apps.runs.progress import progress
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError, DataError, DiskFullError
from robo_rl.data.episodes.atomic_dataset import atomic_dataset, refuse_existing
from robo_rl.data.episodes.episode_writer import EpisodeWriter
from robo_rl.data.episodes.schema import STAMP_COLUMNS, Codec

SLOW = 0.9  # of the rate of frames: a camera below it is said


def import_recordings(config: DataImportConfig) -> int:
    """Import what can be; say what was left out and why. Raises DataError when nothing is left."""
    if config.robot is None:
        raise ConfigError(
            f"{config.source} holds recordings of a robot: say which by robot=, a name or a description of "
            "yours (docs/robot.md)."
        )
    robot = load_description(config.robot)
    refuse_existing(config.out)  # before an hour of pictures is read
    bags = find_bags(Path(config.source))[: config.limit]
    held, left_out = survey(config, robot, bags)
    _refuse_none(config, held, left_out)
    layout = layout_of(config, robot, list(held.values()))
    with progress(2 * len(held), "import", "recording") as bar:
        plans = _plan_all(config, robot, layout, list(held), left_out, bar)
        _write_all(config, robot, layout, plans, left_out, bar)
    for sentence in _grouped(left_out):
        print(f"robo-rl: left out {sentence}", file=sys.stderr)
    print(_account(config, layout, plans, len(bags)))
    return 0


def _account(config: DataImportConfig, layout: RecordingLayout, plans: dict[Path, Plan], found: int) -> str:
    """What came of it, and what comes next."""
    frames, idle_s = (sum(getattr(plan, key) for plan in plans.values()) for key in ("frames", "idle_s"))
    idle = f", without {idle_s:.1f} s of standing still at their ends" if idle_s else ""
    keys = ", ".join(f"{key} {tuple(each.shape)}" for key, each in layout.spec.obs.items())
    return (
        f"Imported {len(plans)} of {found} recordings into {config.out}: {frames} frames at "
        f"{layout.spec.control_hz:g} Hz{idle}\n"
        f"Actions are those of {layout.action}; observed are {keys}\n"
        f"Next:   robo-rl data info path={config.out}"
    )


def _plan_all(
    config: DataImportConfig,
    robot: RobotDescription,
    layout: RecordingLayout,
    bags: list[Path],
    left_out: dict[str, str],
    bar: Any,
) -> dict[Path, Plan]:
    """What each recording becomes; why not, by name, joins `left_out`. Raises DataError if none can be
    used.
    """
    low, high = np.array(layout.spec.action.low), np.array(layout.spec.action.high)
    rules = FrameRules(layout.spec.control_hz, low, high, config.gap_s, config.idle_s)
    plans: dict[Path, Plan] = {}
    came_hz: dict[str, list[float]] = {key: [] for key in layout.pictures}
    for path in bags:
        try:
            with closing(Bag(path, ros_types(), config.namespace)) as bag:
                streams = read_streams(bag, robot, layout.action, layout.pictures.values())
                plans[path] = plan_frames(streams, layout.action, rules, goal=layout.goal)
                for key, topic in layout.pictures.items():
                    came_hz[key].append(streams.pictures[topic].rate_hz)
        except DataError as error:
            left_out[path.name] = str(error)
            bar.update()  # nothing is to be written of it
        bar.update()
    _refuse_none(config, plans, left_out)
    _say_slow(layout, came_hz)
    return plans


def _say_slow(layout: RecordingLayout, came_hz: Mapping[str, list[float]]) -> None:
    """A camera that is slower than its description shows every picture several times."""
    for key, rates in came_hz.items():
        if (rate_hz := float(np.median(rates))) < SLOW * layout.spec.control_hz:
            print(
                f"robo-rl: {key} came at {rate_hz:.1f} Hz, so of {layout.spec.control_hz:g} frames a second "
                "several show the same picture. Mend the camera's rate_hz in the description, or say "
                f"rate_hz={rate_hz:.0f}.",
                file=sys.stderr,
            )


def _write_all(
    config: DataImportConfig,
    robot: RobotDescription,
    layout: RecordingLayout,
    plans: dict[Path, Plan],
    left_out: dict[str, str],
    bar: Any,
) -> None:
    """The dataset, one episode for each plan; the longest says how long an episode may be.

    A plan whose observation turns out not to be the layout's is moved from `plans` to `left_out`.
    """
    spec = layout.spec
    if config.env is None:
        spec = replace(spec, max_episode_steps=max(plan.frames for plan in plans.values()))
    stamps = (*STAMP_COLUMNS, *(f"t_capture_ns.{key}" for key in layout.pictures))
    info = {"source": Path(config.source).name, "robot": robot.name, "action": layout.action}
    codec: Codec = "jpeg" if config.image_codec == "jpeg" else "raw"
    with atomic_dataset(config.out, spec, image_codec=codec, stamps=stamps, info=info) as writer:
        for path, plan in list(plans.items()):
            with closing(Bag(path, ros_types(), config.namespace)) as bag:
                streams = read_streams(bag, robot, layout.action, layout.pictures.values())
                with writer.episode(
                    task=config.task or streams.task, info={"recording": path.name}
                ) as episode:
                    try:
                        _write(episode, bag, streams, plan, layout, config.success)
                    except DiskFullError:
                        raise
                    except DataError as error:
                        episode.discard()
                        del plans[path]
                        left_out[path.name] = str(error)
            bar.update()
        _refuse_none(config, plans, left_out)


def _refuse_none(config: DataImportConfig, kept: Mapping[Path, Any], left_out: Mapping[str, str]) -> None:
    if not kept:
        raise DataError(f"No recording in {config.source} can be used. {' '.join(_grouped(left_out))}")


def _grouped(left_out: Mapping[str, str]) -> list[str]:
    """One sentence for each reason, with the first recording that has it and how many more do."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        names.setdefault(reason.rstrip("."), []).append(name)
    return [
        f"{first}{f' and {len(more)} more' if more else ''}: {reason}."
        for reason, (first, *more) in names.items()
    ]


def _write(
    episode: EpisodeWriter,
    bag: Bag,
    streams: Streams,
    plan: Plan,
    layout: RecordingLayout,
    otherwise: bool | None,
) -> None:
    """One episode; a success pays 1 at its last frame, which ends it. otherwise: the label of one that has
    none.
    """
    success = otherwise if streams.success is None else streams.success
    seen = shown(bag, streams, plan, ArmObserver(layout.spec.obs), layout.pictures)
    for frame, command in enumerate(plan.command):
        obs, stamps = next(seen)
        ends = bool(success) and frame == plan.frames - 1
        episode.add(
            obs,
            plan.action_rad[frame].astype(np.float32),
            reward=float(ends),
            terminated=ends,
            intervention=plan.intervention[frame],
            stamps=stamps | {"t_command_ns": int(streams.commands.times_ns[command])},
        )
    episode.commit(success=success, final_obs=next(seen)[0], complete=not streams.cut_off)
