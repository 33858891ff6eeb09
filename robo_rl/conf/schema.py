"""Settings of the verbs, with the help texts of `robo-rl <verb> --help`."""

from __future__ import annotations

from dataclasses import dataclass

from policies.remote.address import PORT
from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class DoctorConfig:
    """`robo-rl doctor`."""

    json: bool = setting(False, "print one JSON object instead of a table")
    render: bool = setting(True, "also test rendering without a display, which takes a second or two")


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
    recover: bool = setting(False, "first recover interrupted episodes up to their last complete frame")


@dataclass
class DataMergeConfig:
    """`robo-rl data merge`."""

    sources: list[str] = setting(REQUIRED, "folders of datasets with the same contract, e.g. [data/a,data/b]")
    out: str = setting(REQUIRED, "folder of the new dataset")
    dry_run: bool = setting(False, "check the datasets, but only print what would be written")


@dataclass
class DataImportConfig:
    """`robo-rl data import`. A buffer takes env=, robot= with some of the settings below it, or rate_hz=."""

    source: str = setting(
        REQUIRED,
        "folder of recordings (MCAP, rosbag2), one of them, a zarr v2 replay buffer, a LeRobot folder "
        "(v2.0, v2.1, v3.0), a robomimic file, or an RLDS folder",
    )
    out: str = setting(REQUIRED, "folder of the new dataset")
    env: str | None = setting(
        None,
        "environment of a buffer or foreign dataset, e.g. pusht/state; for recordings, a simulated task "
        "with the "
        "same contract",
    )
    keys: list[str] = setting(
        [],
        "pairs key:array, the observation for each array or feature of the source; empty: all of them, "
        "except for a buffer, which needs keys",
    )
    limit: int | None = setting(
        None, "number of episodes to import, from the first on; none: all", at_least=1
    )
    task: str = setting("", "instruction stored with every episode; empty: that of the recording")
    split: str = setting("train", "split of an RLDS dataset, e.g. train, val or test")
    image_codec: str = one_of("raw", "jpeg", help="storage of images; raw reads faster, jpeg is smaller")
    robot: str | None = setting(
        None, "description of the robot in the recordings or the buffer: a name, or a YAML file"
    )
    rate_hz: float | None = setting(
        None,
        "frames per second [Hz]; none: the rate of the commands or of the slowest camera. A buffer without "
        "env= and robot= needs it; a dataset of another program takes it, and needs it without env=, only "
        "where it states no rate",
        at_least=0.1,
    )
    action: str | None = setting(
        None, "topic of the actions, or joint_states; none: command/safe, otherwise teleop/command"
    )
    cameras: str | None = setting(
        None, 'cameras to import, joined by "+"; none: recorded ones of the description; empty: no camera'
    )
    image_width: int | None = setting(
        None, "width to which images are scaled down [px]; none: the recorded width", at_least=1
    )
    depth: bool = setting(False, "import the depth images of these cameras, too")
    velocities: bool | None = setting(
        None, "include joint velocities in the observation; none: where the data hold them"
    )
    goal: str = setting(
        "", 'unit and names of a goal to include in the observation, e.g. "m: x, y, z"; empty: no goal'
    )
    success: bool | None = setting(None, "success label of recordings without one; none: unknown")
    gap_s: float = setting(
        0.5, "longest silence of a topic [s]; recordings with a longer one are left out", at_least=0.001
    )
    idle_s: float | None = setting(
        0.5, "time at rest that is kept at the start and the end [s]; none: all of it", at_least=0.0
    )
    namespace: str = setting("", "namespace of the robot's topics; empty: none")
    dry_run: bool = setting(False, "read and convert everything, but only print what would be written")


@dataclass
class CollectConfig:
    """`robo-rl collect`."""

    env: str | None = setting(
        None,
        "environment, e.g. metaworld/peg-insert-side-v3 (robo-rl info lists all); or task=lift "
        "engine=mujoco; none: the one that policy= was trained on",
    )
    out: str = setting(
        REQUIRED, "folder of the dataset; episodes are added to an existing dataset of the same environment"
    )
    episodes: int = setting(20, "number of episodes in the dataset at the end", at_least=1)
    policy: str | None = setting(None, "policy folder or bundle that acts; none: the scripted expert")
    expert: str | None = setting(
        None,
        "function or class of your own that acts, <module>:<name>: one observation of the environment -> "
        "action in its units; none: the scripted expert",
    )
    noise: float | None = setting(
        None,
        "expert: standard deviation of the noise on its actions (expert=: as a share of half their range); "
        "policy: scale of its initial noise",
        at_least=0.0,
    )
    keep: str = one_of("success", "all", help="episodes that are kept: successful ones, or all")
    attempts: int | None = setting(
        None, "largest number of attempted episodes; none: ten times `episodes`", at_least=1
    )
    seed: int = setting(0, "seed of resets and noise", at_least=0)
    num_envs: int = setting(
        8, "number of episodes recorded in parallel; changes a policy's data by rounding only", at_least=1
    )
    num_workers: int | None = setting(
        None, "number of simulator processes; 0: simulate in this process; none: one per core", at_least=0
    )
    tasks: list[str] = setting([], "in a suite, the tasks to record, with equal shares; empty: all of them")
    reward: str | None = setting(None, "reward of the environment, sparse or dense; none: its default")
    max_episode_steps: int | None = setting(
        None, "longest episode, in steps; none: the environment's own limit", at_least=1
    )
    image_codec: str = one_of("raw", "jpeg", help="storage of images; raw reads faster, jpeg is smaller")
    task: str = setting(
        "", "with env= or policy=, instruction stored with every episode; empty: the environment's name"
    )
    device: str = setting("auto", "device that computes the policy: auto, cpu, cuda or cuda:<number>")
    privileged: bool = setting(
        False, "record also what only the simulator knows (privileged.<name>), for method.privileged=true"
    )
    takeover: float = setting(
        0.0,
        "policy with a base: its corrections begin at a random step of every episode, at most this fraction "
        "of the longest one, and its base, or takeover_from, acts alone before",
        at_least=0.0,
        at_most=1.0,
    )
    takeover_from: str | None = setting(
        None, "policy that acts before the takeover, for any policy or expert after it; none: the base"
    )


@dataclass
class ViewConfig:
    """`robo-rl view`."""

    env: str | None = setting(
        None,
        "environment, e.g. metaworld/peg-insert-side-v3 (robo-rl info lists all); or task=lift "
        "engine=mujoco; none: the one that policy= was trained on",
    )
    pilot: str = one_of(
        "expert",
        "random",
        "still",
        help="source of actions: scripted expert, random actions, or the middle of the action limits",
    )
    policy: str | None = setting(
        None, "policy folder, run, checkpoint (<run>@<step>) or bundle that acts instead of `pilot`"
    )
    expert: str | None = setting(
        None,
        "function or class of your own that acts, <module>:<name>: one observation of the environment -> "
        "action in its units; none: `pilot`",
    )
    noise: float | None = setting(
        None,
        "expert: standard deviation of the noise on its actions (expert=: as a share of half their range); "
        "policy: scale of its initial noise",
        at_least=0.0,
    )
    episodes: int = setting(3, "number of episodes to film", at_least=1)
    seed: int = setting(0, "seed of the evaluation whose episodes are shown", at_least=0)
    max_episode_steps: int | None = setting(
        None, "longest episode, in steps; none: the environment's own limit", at_least=1
    )
    window: bool | None = setting(
        None, "show a live window instead of writing a video; none: where there is a screen and a 3-D scene"
    )
    pretty: bool = setting(
        False, "draw shadows, reflections and smooth edges, more slowly; manipulation tasks only"
    )
    size: int | None = setting(
        None, "height and width of the video [px]; none: the environment's camera", at_least=32
    )
    out: str = setting("runs/view", "folder for episodes.mp4 and sheet.png; older files are replaced")


@dataclass
class EvaluateConfig:
    """`robo-rl evaluate`."""

    policy: str = setting(
        REQUIRED,
        "policy to measure: policy folder, run, checkpoint (<run>@<step>), bundle or remote:<host>:<port>",
    )
    against: str | None = setting(None, "second policy, compared on the same episodes")
    env: str | None = setting(None, "environment to measure in; none: the one that the policy was trained on")
    episodes: int = setting(100, "number of episodes, each with its own seed", at_least=1)
    seed: int = setting(
        0, "seed of the evaluation; every policy gets the same episodes from the same seed", at_least=0
    )
    noise: float | None = setting(
        None, "scale of the policy's initial noise; none: the policy's own", at_least=0.0
    )
    execute: int | None = setting(
        None, "number of actions executed from each chunk; none: the policy's own", at_least=1
    )
    ensemble: float | None = setting(None, "decay rate of a temporal ensemble over chunks; none: no ensemble")
    tasks: list[str] = setting([], "in a suite, the tasks to measure, with equal shares; empty: all of them")
    instruction: str | None = setting(
        None, "what the policy is told in every episode; none: the instruction of the episode's task"
    )
    wordings: str | None = setting(
        None, "in a suite, wordings of the instructions: training, or new; none: training"
    )
    max_episode_steps: int | None = setting(
        None, "longest episode, in steps; none: the environment's own limit", at_least=1
    )
    num_envs: int = setting(
        20, "number of episodes run in parallel; changes a network's output by rounding only", at_least=1
    )
    num_workers: int | None = setting(
        None, "number of simulator processes; 0: simulate in this process; none: one per core", at_least=0
    )
    device: str = setting("auto", "device that computes the policy: auto, cpu, cuda or cuda:<number>")
    video: str | None = setting(None, "MP4 file for a film of the first episodes; none: no film")
    video_episodes: int | None = setting(
        None, "number of episodes in the film; none: 3, or all if there are fewer", at_least=1
    )
    out: str | None = setting(None, "JSON file for the results of every episode; none: no file")


@dataclass
class ExportConfig:
    """`robo-rl export`."""

    policy: str = setting(REQUIRED, "policy folder, run or checkpoint (<run>@<step>)")
    out: str = setting(REQUIRED, "folder of the bundle; an older bundle in it is replaced")
    name: str | None = setting(None, "name in the manifest; none: the name of the folder")
    noise: str | None = setting(
        None, "initial noise on the robot, gaussian or zero; none: as in the last evaluation"
    )
    instruction: str | None = setting(
        None, "vision-language-action policies: what to do until the robot's topic 'task' says otherwise"
    )


@dataclass
class ServeConfig:
    """`robo-rl serve`."""

    policy: str = setting(
        REQUIRED,
        "policy to serve: policy folder, run, checkpoint (<run>@<step>), bundle or LeRobot checkpoint",
    )
    host: str = setting("127.0.0.1", "address to listen on; any but this machine's own needs a token")
    port: int = setting(PORT, "port to listen on; 0: a free one", at_least=0, at_most=65535)
    token: str | None = setting(
        None, "file of the secret that clients must know, made if absent; none: the variable ROBO_RL_TOKEN"
    )
    clients: int = setting(8, "largest number of clients at a time", at_least=1, at_most=256)
    python: str | None = setting(
        None, "policy= of LeRobot: python of an environment with lerobot, which then runs the policy"
    )
    env: str | None = setting(
        None,
        "policy= of LeRobot: environment with its observations and actions; none: a robot, with rate_hz=",
    )
    rate_hz: float | None = setting(
        None, "policy= of LeRobot without env=: frames per second of its data [Hz]", at_least=0.1
    )
    keys: list[str] = setting(
        [], "policy= of LeRobot: pairs observation:feature, see import-policy; empty: by their names"
    )
    device: str = setting("auto", "device that computes the policy: auto, cpu, cuda or cuda:<number>")


@dataclass
class ImportPolicyConfig:
    """`robo-rl import-policy`."""

    source: str = setting(
        REQUIRED, "folder of a LeRobot checkpoint: config.json, model.safetensors, pre- and post-processor"
    )
    out: str = setting(REQUIRED, "new folder of the policy")
    env: str | None = setting(
        None, "environment whose observations and actions the policy has; none: a robot, with rate_hz="
    )
    rate_hz: float | None = setting(
        None, "without env=, frames per second of the checkpoint's data [Hz]", at_least=0.1
    )
    keys: list[str] = setting(
        [], "pairs observation:feature, e.g. [state:observation.environment_state]; empty: by their names"
    )
    steps: int | None = setting(
        None, "steps of DDIM when sampling; none: the checkpoint's, which must then be DDIM", at_least=1
    )


@dataclass
class ContractConfig:
    """`robo-rl contract`."""

    bundle: str = setting(REQUIRED, "folder of the bundle")
    robot: str = setting(
        REQUIRED,
        "description of an arm, by name or file; for a flight bundle: crazyflie, px4 or a driver's file",
    )


@dataclass
class RunConfig:
    """`robo-rl run`."""

    bundle: str = setting(REQUIRED, "folder of the bundle")
    env: str | None = setting(None, "environment to run in; none: the one that the bundle was made for")
    robot: str | None = setting(
        None, "run on sim_arm or sim_quad, through action head and safety filter; none: in the environment"
    )
    episodes: int | None = setting(
        None, "number of episodes to run; none: 1, or no limit where seconds= is given", at_least=1
    )
    seconds: float | None = setting(None, "time after which to stop [s]; none: no limit", at_least=0.0)
    rate_hz: float | None = setting(
        None, "rate of the loop [Hz]; none: the rate that the bundle was made for"
    )
    seed: int = setting(0, "seed of the evaluation whose episodes are run", at_least=0)
    max_episode_steps: int | None = setting(
        None, "longest episode, in steps; none: the environment's own limit", at_least=1
    )
    device: str = one_of("auto", "cpu", "cuda", "tensorrt", help="device of ONNX Runtime")
    threads: int = setting(1, "number of threads of ONNX Runtime", at_least=1)
    realtime: bool = setting(False, "robot=sim_arm: real-time chunking, for flow policies")
    remote: str | None = setting(
        None, "robot=sim_arm: a robo-rl serve that infers, <host>:<port>[,token=<file>]; none: infer here"
    )
    out: str | None = setting(None, "write the report into this JSON file")
