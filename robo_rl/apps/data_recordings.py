"""`robo-rl data import` of recordings: what a human did with the robot becomes what a policy learns from.

Observation and action have the layout that `robo-rl contract` compares with the robot's description, so a policy that
was trained on them can be deployed on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardware.bags.frames import Plan, Rules, plan_frames, shown
from hardware.bags.reader import Bag, find_bags
from hardware.bags.streams import Streams, read_streams
from hardware.bus.cdr import ros_types
from hardware.description import Camera, RobotDescription, load_description
from hardware.layout import parse_unit
from hardware.loop.observation import DEPTH, IMAGE, ArmObserver
from hardware.loop.scale import scalable
from hardware.messages import JointState
from hardware.topics import GOAL, JOINT_STATES, SAFE, TELEOP, compressed_topic, depth_topic, image_topic
from robo_rl.apps.progress import progress
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError, DataError, DiskFullError
from robo_rl.core.spec import ROBOT_SUITE, ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episode_writer import EpisodeWriter
from robo_rl.data.schema import STAMP_COLUMNS, Codec
from robo_rl.data.whole import whole_dataset


@dataclass(frozen=True)
class Layout:
    """What is taken from each recording. pictures: key of the observation -> topic; goal: is it shown?"""

    spec: EnvSpec
    action: str
    pictures: dict[str, str]
    goal: bool


def import_recordings(config: DataImportConfig) -> int:
    """Import what can be; say what was left out and why. Raises DataError when nothing is left."""
    if config.robot is None:
        raise ConfigError(
            f"{config.source} holds recordings of a robot: say which by robot=, a name or a description of yours "
            "(docs/robot.md)."
        )
    robot = load_description(config.robot)
    bags = find_bags(Path(config.source))[: config.limit]
    layout = _layout(config, robot, bags[0])
    with progress(2 * len(bags), "import", "recording") as bar:
        plans, left_out = _plan_all(config, robot, layout, bags, bar)
        left_out += _write_all(config, robot, layout, plans, bar)
    for sentence in left_out:
        print(f"robo-rl: left out {sentence}", file=sys.stderr)
    print(_account(config, layout, plans, len(bags)))
    return 0


def _account(config: DataImportConfig, layout: Layout, plans: dict[Path, Plan], found: int) -> str:
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


def _layout(config: DataImportConfig, robot: RobotDescription, first: Path) -> Layout:
    """From the settings, and from the first recording where these are silent."""
    with closing(Bag(first, ros_types(), config.namespace)) as bag:
        action = config.action or next((topic.name for topic in (SAFE, TELEOP) if topic.name in bag.topics), "")
        if not action:
            raise DataError(
                f"{bag.path.name} holds no commands on '{SAFE.name}' or '{TELEOP.name}'. Say where they are by "
                f"action=, or take what was measured by action={JOINT_STATES.name}. It has "
                f"{', '.join(sorted(bag.topics))}."
            )
        velocities = config.velocities if config.velocities is not None else _tells_velocities(bag, robot)
        pictures, unused = _pictures(config, robot, bag), _unused(config, robot, bag)
    goal = parse_unit(config.goal)
    if config.goal and not goal:
        raise ConfigError(f"goal={config.goal} cannot be read; expected unit and names, such as 'm: x, y, z'.")
    spec = _spec(config, robot, pictures, velocities)
    if config.env is not None:
        spec = _same_contract(config.env, spec)
    for sentence in unused:
        print(f"robo-rl: {sentence}", file=sys.stderr)
    return Layout(spec, action, pictures, bool(goal))


def _unused(config: DataImportConfig, robot: RobotDescription, bag: Bag) -> list[str]:
    """What was recorded and will not be seen by a policy, although nobody said so."""
    said = []
    if GOAL.name in bag.topics and not config.goal:
        said.append(f"'{GOAL.name}' was recorded, and no policy will be shown it; if it shall be: goal='m: x, y, z'.")
    names = [name for name in bag.topics if name.startswith("camera/")]
    cameras = sorted({name.split("/")[1] for name in names} - set(robot.cameras))
    if cameras and config.cameras is None:
        which = ", ".join(cameras)
        said.append(f"pictures of {which} were recorded, and the description of '{robot.name}' has no such camera.")
    return said


def _tells_velocities(bag: Bag, robot: RobotDescription) -> bool:
    """As the first state of all joints has it."""
    for _, _, state in bag.messages({JOINT_STATES.name}):
        if isinstance(state, JointState) and set(robot.names) <= set(state.names):
            return len(state.velocity_rad_s) == len(state.names)
    return False


def _pictures(config: DataImportConfig, robot: RobotDescription, bag: Bag) -> dict[str, str]:
    """Key of the observation -> topic."""
    asked = None if config.cameras is None else [name for name in config.cameras.split("+") if name]
    if unknown := [name for name in asked or () if name not in robot.cameras]:
        raise ConfigError(
            f"The camera '{unknown[0]}' is not in the description of '{robot.name}', which has "
            f"{', '.join(robot.cameras) or 'none'}: add it there, with width_px, height_px and rate_hz."
        )
    found: dict[str, str] = {}
    for name in robot.cameras if asked is None else asked:
        topics = [topic(name).name for topic in (image_topic, compressed_topic)]
        there = [topic for topic in topics if topic in bag.topics]
        if asked is not None or there:
            found[IMAGE + name] = (there or topics)[0]
        if config.depth:
            found[DEPTH + name] = depth_topic(name).name
    return found


def _spec(config: DataImportConfig, robot: RobotDescription, pictures: dict[str, str], velocities: bool) -> EnvSpec:
    """The layout that contract and nodes read: see `hardware.layout`."""
    named = ", ".join(robot.names)
    unit = "; ".join([f"rad: {named}", *([f"rad/s: {named}"] if velocities else []), *filter(None, [config.goal])])
    obs: dict[str, ArraySpec] = {}
    for key in pictures:
        size = _size(config.image_width, robot.cameras[key.partition(".")[2]])
        obs[key] = ArraySpec((*size, 3), "uint8") if key.startswith(IMAGE) else ArraySpec(size, "float32", "m")
    obs["state"] = ArraySpec((sum(len(segment.names) for segment in parse_unit(unit)),), "float32", unit)
    low, high = (tuple(float(each) for each in robot.column(key)) for key in ("low_rad", "high_rad"))
    action, rate_hz = ActionSpec(low, high, f"rad: {named}"), _rate_hz(config, robot, pictures)
    return EnvSpec(f"{ROBOT_SUITE}/{robot.name}", obs, action, 1, rate_hz)


def _rate_hz(config: DataImportConfig, robot: RobotDescription, pictures: Iterable[str]) -> float:
    """Of frames: as fast as the slowest of commands, states and pictures, faster than which no policy may be asked."""
    rates = {"commands": robot.command_hz, "states": robot.state_hz}
    rates |= {f"pictures of {key}": robot.cameras[key.partition(".")[2]].rate_hz for key in pictures}
    slowest = min(rates, key=lambda name: rates[name])
    if config.rate_hz is not None and config.rate_hz > rates[slowest]:
        raise ConfigError(
            f"rate_hz={config.rate_hz:g} cannot be used: the description of '{robot.name}' has {slowest} at "
            f"{rates[slowest]:g} Hz, and a policy is not asked more often than it can be shown something new."
        )
    return config.rate_hz or rates[slowest]


def _size(width_px: int | None, camera: Camera) -> tuple[int, int]:
    """(height, width) of the pictures that policies are shown. Raises ConfigError for larger ones than there are."""
    if width_px is None:
        return camera.height_px, camera.width_px
    size = round(width_px * camera.height_px / camera.width_px), width_px
    if not scalable((camera.height_px, camera.width_px), size):
        raise ConfigError(
            f"image_width={width_px} cannot be used: pictures of {camera.width_px} x {camera.height_px} are scaled "
            "down only, and keep their shape."
        )
    return size


def _same_contract(env: str, spec: EnvSpec) -> EnvSpec:
    """The contract of a simulated task, when the recordings have it. Raises ConfigError that says what differs."""
    from sim.registry import make_env

    with closing(make_env(env, 1)) as made:
        wanted = made.spec
    for what, found, expected in (
        ("observations", {k: (a.shape, a.unit) for k, a in spec.obs.items()},
         {k: (a.shape, a.unit) for k, a in wanted.obs.items()}),
        ("actions", spec.action.unit, wanted.action.unit),
        ("rate [Hz]", spec.control_hz, wanted.control_hz),
    ):  # fmt: skip
        if found != expected:
            raise ConfigError(f"The {what} of the recordings are {found}, those of {env} are {expected}.")
    return wanted


def _plan_all(
    config: DataImportConfig, robot: RobotDescription, layout: Layout, bags: list[Path], bar: Any
) -> tuple[dict[Path, Plan], list[str]]:
    """What each recording becomes, and one sentence for each that cannot be used. Raises DataError if none can."""
    low, high = np.array(layout.spec.action.low), np.array(layout.spec.action.high)
    rules = Rules(layout.spec.control_hz, low, high, config.gap_s, config.idle_s)
    plans: dict[Path, Plan] = {}
    left_out: list[str] = []
    for path in bags:
        try:
            with closing(Bag(path, ros_types(), config.namespace)) as bag:
                streams = read_streams(bag, robot, layout.action, layout.pictures.values())
                plans[path] = plan_frames(streams, layout.action, rules, goal=layout.goal)
        except DataError as error:
            left_out.append(f"{path.name}: {str(error).rstrip('.')}.")
            bar.update()  # nothing is to be written of it
        bar.update()
    _refuse_none(config, plans, left_out)
    return plans, left_out


def _write_all(
    config: DataImportConfig, robot: RobotDescription, layout: Layout, plans: dict[Path, Plan], bar: Any
) -> list[str]:
    """The dataset, one episode for each plan; the longest says how long an episode may be.

    A plan whose observation turns out not to be the layout's is taken out of `plans`, with a sentence.
    """
    spec, left_out = layout.spec, list[str]()
    if config.env is None:
        spec = replace(spec, max_episode_steps=max(plan.frames for plan in plans.values()))
    stamps = (*STAMP_COLUMNS, *(f"t_capture_ns.{key}" for key in layout.pictures))
    info = {"source": Path(config.source).name, "robot": robot.name, "action": layout.action}
    codec: Codec = "jpeg" if config.image_codec == "jpeg" else "raw"
    with whole_dataset(config.out, spec, image_codec=codec, stamps=stamps, info=info) as writer:
        for path, plan in list(plans.items()):
            with closing(Bag(path, ros_types(), config.namespace)) as bag:
                streams = read_streams(bag, robot, layout.action, layout.pictures.values())
                with writer.episode(task=config.task or streams.task, info={"recording": path.name}) as episode:
                    try:
                        _write(episode, bag, streams, plan, layout, config.success)
                    except DiskFullError:
                        raise
                    except DataError as error:
                        episode.discard()
                        del plans[path]
                        left_out.append(f"{path.name}: {str(error).rstrip('.')}.")
            bar.update()
        _refuse_none(config, plans, left_out)
    return left_out


def _refuse_none(config: DataImportConfig, plans: dict[Path, Plan], left_out: list[str]) -> None:
    if not plans:
        raise DataError(f"No recording in {config.source} can be used. {' '.join(left_out)}")


def _write(
    episode: EpisodeWriter, bag: Bag, streams: Streams, plan: Plan, layout: Layout, otherwise: bool | None
) -> None:
    """One episode; a success pays 1 at its last frame, which ends it. otherwise: the label of one that has none."""
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
    episode.commit(success=success, final_obs=next(seen)[0])
