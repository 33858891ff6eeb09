"""`robo-rl data import` of recordings: commands and sensor data of a robot as a dataset for training.

Observation and action have the layout that `robo-rl contract` compares with the robot's description, so a
policy trained on them can be deployed on the robot.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardware.bus.dds.cdr import ros_types
from hardware.description import RobotDescription, load_description
from hardware.loop.observation import ArmObserver
from hardware.recording.bag_reader import Bag, find_bags
from hardware.recording.frames import FrameRules, Plan, observations, plan_frames
from hardware.recording.streams import Streams, read_streams
from robo_rl.apps.imports.import_report import report_import
from robo_rl.apps.imports.recordings_layout import LayoutSettings, RecordingLayout, layout_of, survey
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError, DataError, DiskFullError
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.atomic_dataset import atomic_dataset, refuse_existing
from robo_rl.data.episodes.episode_writer import EpisodeWriter
from robo_rl.data.episodes.schema import STAMP_COLUMNS, Codec
from robo_rl.runs.progress import progress

SLOW = 0.9  # cameras below this fraction of the frame rate are reported


@dataclass(frozen=True)
class Recordings:
    """Recordings to import: robot, namespace, and the label of unlabelled ones."""

    source: Path
    robot: RobotDescription
    namespace: str
    task: str
    success: bool | None

    def read(self, bag: Bag, layout: RecordingLayout) -> Streams:
        return read_streams(bag, self.robot, layout.action, layout.pictures.values())

    def open(self, path: Path) -> closing[Bag]:
        return closing(Bag(path, ros_types(), self.namespace))


def import_recordings(config: DataImportConfig) -> int:
    """Import all usable recordings and print those left out. Raises DataError if none is usable."""
    if config.robot is None:
        raise ConfigError(
            f"{config.source} holds recordings of a robot: give robot=<a name, or your own description> "
            "(docs/robot.md)."
        )
    refuse_existing(config.out)  # before the images are read, which may take an hour
    robot = load_description(config.robot)
    recordings = Recordings(Path(config.source), robot, config.namespace, config.task, config.success)
    bags = find_bags(recordings.source)[: config.limit]
    held, left_out = survey(robot, bags, config.namespace)
    _refuse_none(recordings.source, held, left_out)
    settings = LayoutSettings(**{item.name: getattr(config, item.name) for item in fields(LayoutSettings)})
    layout = layout_of(settings, robot, list(held.values()))
    rules = FrameRules(
        layout.spec.control_hz,
        np.array(layout.spec.action.low),
        np.array(layout.spec.action.high),
        config.gap_s,
        config.idle_s,
    )
    codec: Codec = "jpeg" if config.image_codec == "jpeg" else "raw"
    with progress(2 * len(held), "import", "recording") as bar:
        plans = _plan_all(recordings, layout, rules, list(held), left_out, bar)
        if config.env is None:
            longest = max(plan.frames for plan in plans.values())
            layout = replace(layout, spec=replace(layout.spec, max_episode_steps=longest))
        _write_all(recordings, config.out, codec, layout, plans, left_out, bar)
    for sentence in _grouped(left_out):
        print(f"robo-rl: left out {sentence}", file=sys.stderr)
    report_import(
        config, f"{len(plans)} of {counted(len(bags), 'recording')}", f": {_summary(layout, plans)}"
    )
    return 0


def _summary(layout: RecordingLayout, plans: dict[Path, Plan]) -> str:
    """Text with frames, rate, observations and actions."""
    frames, idle_s = (sum(getattr(plan, key) for plan in plans.values()) for key in ("frames", "idle_s"))
    idle = f", without {idle_s:.1f} s at rest at their ends" if idle_s else ""
    keys = ", ".join(f"{key} {tuple(each.shape)}" for key, each in layout.spec.obs.items())
    return (
        f"{counted(frames, 'frame')} at {layout.spec.control_hz:g} Hz{idle}\n"
        f"Actions are those of {layout.action}; observed are {keys}"
    )


def _plan_all(
    recordings: Recordings,
    layout: RecordingLayout,
    rules: FrameRules,
    bags: list[Path],
    left_out: dict[str, str],
    bar: Any,
) -> dict[Path, Plan]:
    """Frames of each recording. The reasons for unusable ones are added to `left_out`.

    Raises DataError if none is usable.
    """
    plans: dict[Path, Plan] = {}
    came_hz: dict[str, list[float]] = {key: [] for key in layout.pictures}
    lossy: list[str] = []
    for path in bags:
        try:
            with recordings.open(path) as bag:
                streams = recordings.read(bag, layout)
                plans[path] = plan_frames(streams, layout.action, rules, goal=layout.goal)
                lossy += [path.name] if bag.losses else []
                for key, topic in layout.pictures.items():
                    came_hz[key].append(streams.pictures[topic].rate_hz)
        except DataError as error:
            left_out[path.name] = str(error)
            bar.update()  # it is not written
        bar.update()
    _refuse_none(recordings.source, plans, left_out)
    _say_slow(layout, came_hz)
    if lossy:
        print(
            f"robo-rl: messages may be missing in {', '.join(lossy)}: the recorder's computer was too busy "
            "to receive all of them.",
            file=sys.stderr,
        )
    return plans


def _say_slow(layout: RecordingLayout, came_hz: Mapping[str, list[float]]) -> None:
    """Report cameras slower than their description: several frames then show the same image."""
    for key, rates in came_hz.items():
        if (rate_hz := float(np.median(rates))) < SLOW * layout.spec.control_hz:
            print(
                f"robo-rl: {key} came at {rate_hz:.1f} Hz, so of {layout.spec.control_hz:g} frames a second "
                "several show the same image. Correct the camera's rate_hz in the description, or give "
                f"rate_hz={rate_hz:.0f}.",
                file=sys.stderr,
            )


def _write_all(
    recordings: Recordings,
    out: str,
    codec: Codec,
    layout: RecordingLayout,
    plans: dict[Path, Plan],
    left_out: dict[str, str],
    bar: Any,
) -> None:
    """Write the dataset, one episode per plan.

    A plan whose observation does not match the layout is moved from `plans` to `left_out`.
    """
    stamps = (*STAMP_COLUMNS, *(f"t_capture_ns.{key}" for key in layout.pictures))
    info = {"source": recordings.source.name, "robot": recordings.robot.name, "action": layout.action}
    with atomic_dataset(out, layout.spec, image_codec=codec, stamps=stamps, info=info) as writer:
        for path, plan in list(plans.items()):
            with recordings.open(path) as bag:
                streams = recordings.read(bag, layout)
                with writer.episode(
                    task=recordings.task or streams.task, info={"recording": path.name}
                ) as episode:
                    try:
                        _write(episode, bag, streams, plan, layout, recordings.success)
                    except DiskFullError:
                        raise
                    except DataError as error:
                        episode.discard()
                        del plans[path]
                        left_out[path.name] = str(error)
            bar.update()
        _refuse_none(recordings.source, plans, left_out)


def _refuse_none(source: Path, kept: Mapping[Path, Any], left_out: Mapping[str, str]) -> None:
    if not kept:
        raise DataError(f"No recording in {source} can be used. {' '.join(_grouped(left_out))}")


def _grouped(left_out: Mapping[str, str]) -> list[str]:
    """One sentence per reason, with its first recording and the number of others."""
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
    """Write an episode; a success has reward 1 at its last frame. otherwise: label of an unlabelled
    recording.
    """
    success = otherwise if streams.success is None else streams.success
    seen = observations(bag, streams, plan, ArmObserver(layout.spec.obs), layout.pictures)
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
