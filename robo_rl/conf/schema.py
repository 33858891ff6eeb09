"""Settings of the verbs. The comment that ends a line is the text of `robo-rl <verb> --help`."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import REQUIRED, at_least, one_of


@dataclass
class DoctorConfig:
    """`robo-rl doctor`."""

    json: bool = False  # print one JSON object instead of a table
    render: bool = True  # also try to draw a picture without a display (takes a second or two)


@dataclass
class InfoConfig:
    """`robo-rl info`."""

    json: bool = False  # print one JSON object instead of text


@dataclass
class DataInfoConfig:
    """`robo-rl data info`."""

    path: str = REQUIRED  # folder of the dataset
    json: bool = False  # print one JSON object instead of text


@dataclass
class DataValidateConfig:
    """`robo-rl data validate`."""

    path: str = REQUIRED  # folder of the dataset
    recover: bool = False  # first salvage interrupted episodes to their last whole frame


@dataclass
class DataMergeConfig:
    """`robo-rl data merge`."""

    sources: list[str] = REQUIRED  # folders of datasets that were recorded alike: [data/a,data/b]
    out: str = REQUIRED  # folder of the new dataset


@dataclass
class DataImportConfig:
    """`robo-rl data import`. Settings from `robot` on are those of recordings.

    source: folder of recordings (MCAP, rosbag2), one of them, or a zarr v2 replay buffer. env: environment
    that a buffer belongs to, such as pusht/state, or simulated task whose contract recordings have.
    """

    source: str = REQUIRED
    out: str = REQUIRED  # folder of the new dataset
    env: str | None = None
    keys: list[str] = field(
        default_factory=list
    )  # key:array pairs of a buffer; Push-T's published file needs none
    limit: int | None = at_least(1, None)  # only the first episodes
    task: str = ""  # text noted with every episode; recordings say their own where this is empty
    image_codec: str = one_of("raw", "jpeg")  # raw reads faster, jpeg is smaller
    robot: str | None = None  # description of the robot that was recorded: a name, or a YAML file
    rate_hz: float | None = at_least(
        0.1, None
    )  # frames per second; none: that of commands or the slowest camera
    action: str | None = (
        None  # topic of the commands, or joint_states; none: command/safe, else teleop/command
    )
    cameras: str | None = (
        None  # joined by "+"; none: those of the description that were recorded; empty: none of them
    )
    image_width: int | None = at_least(
        1, None
    )  # their pictures scaled down to this many pixels; none: as they came
    depth: bool = False  # the depths of these cameras as well
    velocities: bool | None = (
        None  # are policies shown the joints' velocities? none: where the robot tells them
    )
    goal: str = ""  # what the topic goal holds, to be shown as well: unit and names, e.g. "m: x, y, z"
    success: bool | None = None  # of recordings that do not say it themselves; none: nobody knows
    gap_s: float = at_least(0.001, 0.5)  # leave out a recording in which a topic is silent for longer
    idle_s: float | None = at_least(0.0, 0.5)  # of standing still at either end, keep so much; none: all
    namespace: str = ""  # of the robot, where its topics have one


@dataclass
class CollectConfig:
    """`robo-rl collect`."""

    env: str = REQUIRED  # e.g. metaworld/peg-insert-side-v3 (all: robo-rl info); or task=lift engine=mujoco
    out: str = REQUIRED  # folder of the dataset; an existing one of the same environment is added to
    episodes: int = at_least(1, 20)  # episodes that the dataset holds when done
    policy: str | None = None  # policy folder or bundle that acts; without it the scripted expert does
    noise: float | None = at_least(
        0.0, None
    )  # spread added to the expert's actions; scale of a policy's noise
    keep: str = one_of("success", "all")  # which episodes are kept
    attempts: int | None = at_least(1, None)  # give up after this many; none: ten times the episodes wanted
    seed: int = at_least(0, 0)  # of resets and noise
    num_envs: int = at_least(
        1, 8
    )  # episodes recorded side by side; a policy's data depend on it by rounding alone
    num_workers: int | None = at_least(0, None)  # simulator processes, 0: this one; none: one per core
    reward: str | None = None  # sparse or dense; none: what the environment gives by itself
    max_episode_steps: int | None = at_least(1, None)  # none: the environment's own
    image_codec: str = one_of("raw", "jpeg")  # raw reads faster, jpeg is smaller
    task: str = ""  # beside env=, text noted with every episode; empty: the environment's name
    device: str = "auto"  # of the policy: auto | cpu | cuda | cuda:<number>


@dataclass
class ViewConfig:
    """`robo-rl view`."""

    env: str = REQUIRED  # e.g. metaworld/peg-insert-side-v3 (all: robo-rl info); or task=lift engine=mujoco
    pilot: str = one_of("expert", "random", "still")  # who acts: its scripted expert, chance, or nobody
    policy: str | None = None  # or a policy folder, run or bundle
    noise: float | None = at_least(
        0.0, None
    )  # spread added to the expert's actions; scale of a policy's noise
    episodes: int = at_least(1, 3)  # filmed one after another
    seed: int = at_least(0, 0)  # of the evaluation whose episodes are shown
    max_episode_steps: int | None = at_least(1, None)  # none: the environment's own
    window: bool | None = (
        None  # live on the screen instead of a video; none: where there is a screen and a 3-D scene
    )
    pretty: bool = False  # shadows, reflections and smooth edges: slower, for tasks of manipulation
    size: int | None = at_least(32, None)  # height and width of the video [px]; none: the environment's own
    out: str = "runs/view"  # folder of episodes.mp4 and sheet.png, which are replaced


@dataclass
class EvaluateConfig:
    """`robo-rl evaluate`."""

    policy: str = REQUIRED  # policy folder, run or bundle
    against: str | None = None  # another one, compared on the same episodes
    env: str | None = None  # none: the one that the policy was trained on
    episodes: int = at_least(1, 100)  # how many, each with its own seed
    seed: int = at_least(0, 0)  # of the evaluation: the same seed gives the same episodes to every policy
    noise: float | None = at_least(
        0.0, None
    )  # scale of the initial noise; none: as the policy is meant to run
    execute: int | None = at_least(1, None)  # actions taken from a chunk; none: the policy's own
    ensemble: float | None = None  # decay of a temporal ensemble; none: no ensemble
    max_episode_steps: int | None = at_least(1, None)  # none: the environment's own
    num_envs: int = at_least(
        1, 20
    )  # episodes run side by side; what a network answers depends on it by rounding alone
    num_workers: int | None = at_least(0, None)  # simulator processes, 0: this one; none: one per core
    device: str = "auto"  # auto | cpu | cuda | cuda:<number>
    video: str | None = None  # film the first episodes into this MP4
    video_episodes: int = at_least(1, 3)  # how many of them
    out: str | None = None  # write the results, episode by episode, into this JSON file


@dataclass
class ExportConfig:
    """`robo-rl export`."""

    policy: str = REQUIRED  # policy folder or run
    out: str = REQUIRED  # folder of the bundle; an older bundle there is replaced
    name: str | None = None  # none: the name of the folder
    noise: str | None = None  # gaussian or zero: how the robot draws it; none: as it was last evaluated


@dataclass
class ContractConfig:
    """`robo-rl contract`."""

    bundle: str = REQUIRED  # folder of the bundle
    robot: str = REQUIRED  # an arm's description, by name or file; a flight bundle's: crazyflie, px4 or a driver's file


@dataclass
class RunConfig:
    """`robo-rl run`."""

    bundle: str = REQUIRED  # folder of the bundle
    env: str | None = None  # none: the one that the bundle was made for
    robot: str | None = (
        None  # sim_arm or sim_quad: through policy, head and safety filter; none: the environment
    )
    episodes: int | None = at_least(1, None)  # stop after this many; none: 1, unless seconds are given
    seconds: float | None = at_least(0.0, None)  # or stop after this time
    rate_hz: float | None = None  # none: the rate that the bundle was made for
    seed: int = at_least(0, 0)  # of the evaluation whose episodes are run
    max_episode_steps: int | None = at_least(1, None)  # none: the environment's own
    device: str = one_of("auto", "cpu", "cuda")  # where ONNX Runtime computes
    threads: int = at_least(1, 1)  # of ONNX Runtime
    realtime: bool = (
        False  # robot=sim_arm: each chunk goes on where the one before still runs; for flow policies
    )
    out: str | None = None  # write the report into this JSON file
