"""Settings of the verbs, with the help texts of `robo-rl <verb> --help`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class DoctorConfig:
    """`robo-rl doctor`."""

    json: bool = setting(False, "print one JSON object instead of a table")
    render: bool = setting(True, "also try to draw a picture without a display (takes a second or two)")


@dataclass
class InfoConfig:
    """`robo-rl info`."""

    json: bool = setting(False, "print one JSON object instead of text")


@dataclass
class DataInfoConfig:
    """`robo-rl data info`."""

    path: str = setting(REQUIRED, "folder of the dataset")
    json: bool = setting(False, "print one JSON object instead of text")


@dataclass
class DataValidateConfig:
    """`robo-rl data validate`."""

    path: str = setting(REQUIRED, "folder of the dataset")
    recover: bool = setting(False, "first salvage interrupted episodes to their last whole frame")


@dataclass
class DataMergeConfig:
    """`robo-rl data merge`."""

    sources: list[str] = setting(REQUIRED, "folders of datasets that were recorded alike: [data/a,data/b]")
    out: str = setting(REQUIRED, "folder of the new dataset")


@dataclass
class DataImportConfig:
    """`robo-rl data import`. A buffer takes env=, or robot= and some of the settings below it."""

    source: str = setting(
        REQUIRED, "folder of recordings (MCAP, rosbag2), one of them, or a zarr v2 replay buffer"
    )
    out: str = setting(REQUIRED, "folder of the new dataset")
    env: str | None = setting(
        None,
        "a buffer's environment, e.g. pusht/state; of recordings, a simulated task of the same contract",
    )
    keys: list[str] = setting([], "key:array pairs of a buffer; Push-T's published file needs none")
    limit: int | None = setting(None, "only the first episodes", at_least=1)
    task: str = setting("", "text noted with every episode; empty: that of the recording")
    image_codec: str = one_of("raw", "jpeg", help="raw reads faster, jpeg is smaller")
    robot: str | None = setting(
        None, "description of the robot in the recordings or the buffer: a name, or a YAML file"
    )
    rate_hz: float | None = setting(
        None, "frames per second; none: that of commands or the slowest camera", at_least=0.1
    )
    action: str | None = setting(
        None, "topic of the commands, or joint_states; none: command/safe, else teleop/command"
    )
    cameras: str | None = setting(
        None, 'joined by "+"; none: those of the description that were recorded; empty: none of them'
    )
    image_width: int | None = setting(
        None, "width that pictures are scaled down to [px]; none: as they were recorded", at_least=1
    )
    depth: bool = setting(False, "also the depth images of these cameras")
    velocities: bool | None = setting(None, "observe the joints' velocities; none: where the data hold them")
    goal: str = setting("", 'unit and names of the goal, to observe it, e.g. "m: x, y, z"')
    success: bool | None = setting(None, "label of recordings without one; none: unknown")
    gap_s: float = setting(0.5, "leave out a recording in which a topic is silent for longer", at_least=0.001)
    idle_s: float | None = setting(
        0.5, "seconds of standing still kept at either end; none: all", at_least=0.0
    )
    namespace: str = setting("", "namespace of the robot's topics, where they have one")


@dataclass
class CollectConfig:
    """`robo-rl collect`."""

    env: str = setting(
        REQUIRED, "e.g. metaworld/peg-insert-side-v3 (all: robo-rl info); or task=lift engine=mujoco"
    )
    out: str = setting(REQUIRED, "folder of the dataset; an existing one of the same environment is added to")
    episodes: int = setting(20, "episodes that the dataset holds when done", at_least=1)
    policy: str | None = setting(
        None, "policy folder or bundle that acts; without it the scripted expert does"
    )
    noise: float | None = setting(
        None, "spread added to the expert's actions; scale of a policy's noise", at_least=0.0
    )
    keep: str = one_of("success", "all", help="which episodes are kept")
    attempts: int | None = setting(
        None, "give up after this many; none: ten times the episodes wanted", at_least=1
    )
    seed: int = setting(0, "seed of resets and noise", at_least=0)
    num_envs: int = setting(
        8, "episodes recorded side by side; a policy's data depend on it by rounding alone", at_least=1
    )
    num_workers: int | None = setting(
        None, "simulator processes, 0: this one; none: one per core", at_least=0
    )
    reward: str | None = setting(None, "sparse or dense; none: what the environment gives by itself")
    max_episode_steps: int | None = setting(None, "none: the environment's own", at_least=1)
    image_codec: str = one_of("raw", "jpeg", help="raw reads faster, jpeg is smaller")
    task: str = setting("", "beside env=, text noted with every episode; empty: the environment's name")
    device: str = setting("auto", "device of the policy: auto | cpu | cuda | cuda:<number>")


@dataclass
class ViewConfig:
    """`robo-rl view`."""

    env: str = setting(
        REQUIRED, "e.g. metaworld/peg-insert-side-v3 (all: robo-rl info); or task=lift engine=mujoco"
    )
    pilot: str = one_of("expert", "random", "still", help="who acts: its scripted expert, chance, or nobody")
    policy: str | None = setting(None, "or a policy folder, run, checkpoint (<run>@<step>) or bundle")
    noise: float | None = setting(
        None, "spread added to the expert's actions; scale of a policy's noise", at_least=0.0
    )
    episodes: int = setting(3, "filmed one after another", at_least=1)
    seed: int = setting(0, "of the evaluation whose episodes are shown", at_least=0)
    max_episode_steps: int | None = setting(None, "none: the environment's own", at_least=1)
    window: bool | None = setting(
        None, "live on the screen instead of a video; none: where there is a screen and a 3-D scene"
    )
    pretty: bool = setting(False, "shadows, reflections and smooth edges: slower, for tasks of manipulation")
    size: int | None = setting(
        None, "height and width of the video [px]; none: the environment's own", at_least=32
    )
    out: str = setting("runs/view", "folder of episodes.mp4 and sheet.png, which are replaced")


@dataclass
class EvaluateConfig:
    """`robo-rl evaluate`."""

    policy: str = setting(REQUIRED, "policy folder, run, checkpoint (<run>@<step>) or bundle")
    against: str | None = setting(None, "another one, compared on the same episodes")
    env: str | None = setting(None, "none: the one that the policy was trained on")
    episodes: int = setting(100, "how many, each with its own seed", at_least=1)
    seed: int = setting(
        0, "of the evaluation: the same seed gives the same episodes to every policy", at_least=0
    )
    noise: float | None = setting(
        None, "scale of the initial noise; none: as the policy is meant to run", at_least=0.0
    )
    execute: int | None = setting(None, "actions taken from a chunk; none: the policy's own", at_least=1)
    ensemble: float | None = setting(None, "decay of a temporal ensemble; none: no ensemble")
    max_episode_steps: int | None = setting(None, "none: the environment's own", at_least=1)
    num_envs: int = setting(
        20, "episodes run side by side; what a network answers depends on it by rounding alone", at_least=1
    )
    num_workers: int | None = setting(
        None, "simulator processes, 0: this one; none: one per core", at_least=0
    )
    device: str = setting("auto", "auto | cpu | cuda | cuda:<number>")
    video: str | None = setting(None, "film the first episodes into this MP4")
    video_episodes: int = setting(3, "how many of them", at_least=1)
    out: str | None = setting(None, "write the results, episode by episode, into this JSON file")


@dataclass
class ExportConfig:
    """`robo-rl export`."""

    policy: str = setting(REQUIRED, "policy folder, run or checkpoint (<run>@<step>)")
    out: str = setting(REQUIRED, "folder of the bundle; an older bundle there is replaced")
    name: str | None = setting(None, "none: the name of the folder")
    noise: str | None = setting(
        None, "gaussian or zero: how the robot draws it; none: as it was last evaluated"
    )


@dataclass
class ContractConfig:
    """`robo-rl contract`."""

    bundle: str = setting(REQUIRED, "folder of the bundle")
    robot: str = setting(
        REQUIRED,
        "an arm's description, by name or file; a flight bundle's: crazyflie, px4 or a driver's file",
    )


@dataclass
class RunConfig:
    """`robo-rl run`."""

    bundle: str = setting(REQUIRED, "folder of the bundle")
    env: str | None = setting(None, "none: the one that the bundle was made for")
    robot: str | None = setting(
        None, "sim_arm or sim_quad: through policy, head and safety filter; none: the environment"
    )
    episodes: int | None = setting(
        None, "stop after this many; none: 1, unless seconds are given", at_least=1
    )
    seconds: float | None = setting(None, "or stop after this time", at_least=0.0)
    rate_hz: float | None = setting(None, "none: the rate that the bundle was made for")
    seed: int = setting(0, "of the evaluation whose episodes are run", at_least=0)
    max_episode_steps: int | None = setting(None, "none: the environment's own", at_least=1)
    device: str = one_of("auto", "cpu", "cuda", help="where ONNX Runtime computes")
    threads: int = setting(1, "of ONNX Runtime", at_least=1)
    realtime: bool = setting(
        False, "robot=sim_arm: each chunk goes on where the one before still runs; for flow policies"
    )
    out: str | None = setting(None, "write the report into this JSON file")
