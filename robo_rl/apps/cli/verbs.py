"""Table of the verbs of `robo-rl`, in the order in which they are used.

A verb's `target` is a function `main(config) -> int | None` that takes an instance of its `schema`. Both are
imported when the verb is called, so that `robo-rl --help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """One verb. extra: the pip extra that installs what its module imports."""

    target: str
    extra: str | None
    schema: str
    summary: str
    examples: tuple[str, ...]


def _verb(module: str, schema: str, extra: str | None, summary: str, *examples: str) -> Verb:
    """A row of the table. module: below robo_rl.apps, with `:function` unless that is `main`."""
    target = module if ":" in module else f"{module}:main"
    return Verb(f"robo_rl.apps.{target}", extra, f"robo_rl.conf.{schema}", summary, examples)


VERBS = {
    "doctor": _verb(
        "doctor",
        "schema:DoctorConfig",
        None,
        "list what this machine can do, what is missing, and the command that installs it",
        "robo-rl doctor",
        "robo-rl doctor json=true",
    ),
    "demo": _verb(
        "demo",
        "demo:DemoConfig",
        "train",
        "run the whole pipeline once: demonstrations, base, fine-tuning, single-step head, bundle, report",
        "robo-rl demo",
    ),
    "view": _verb(
        "view",
        "schema:ViewConfig",
        "sim",
        "show an environment, driven by its expert, a policy or random actions, in a window; without a "
        "display as a video and stills",
        "robo-rl view env=metaworld/assembly-v3",
        "robo-rl view env=quad/race:track=splits episodes=1",
        "robo-rl view policy=runs/base/policy",
        "robo-rl view task=peg_insert engine=pybullet control=joint_velocity",
    ),
    "collect": _verb(
        "collect",
        "schema:CollectConfig",
        "sim",
        "record episodes of a scripted expert or of a trained policy",
        "robo-rl collect env=metaworld/peg-insert-side-v3 episodes=20 noise=0.1 out=data/peg20",
        "robo-rl collect task=lift engine=mujoco randomise=mild out=data/lift",
        "robo-rl collect policy=runs/base/policy keep=all out=data/rollouts",
    ),
    "data import": _verb(
        "imports.data_import",
        "schema:DataImportConfig",
        "train",
        "turn recordings (MCAP, rosbag2), replay buffers, LeRobot v2 and v3, robomimic, RLDS into a dataset",
        "robo-rl data import source=recordings robot=mine.yaml out=data/mine",
        "robo-rl data import source=pusht.zarr env=pusht/state out=data/pusht",
        "robo-rl data import source=downloads/svla_so100 out=data/so100",
    ),
    "data export": _verb(
        "datasets.export",
        "datasets.exchange:DataExportConfig",
        "formats",
        "write a dataset in the format of another program: LeRobot v3, zarr, robomimic, RLDS, MCAP, Rerun",
        "robo-rl data export path=data/peg20 format=lerobot out=exports/peg20",
        "robo-rl data export path=data/peg20 format=robomimic out=exports/peg20.hdf5",
    ),
    "data info": _verb(
        "data:info",
        "schema:DataInfoConfig",
        "train",
        "describe a dataset: episodes, frames, keys with shapes, success",
        "robo-rl data info path=data/peg20",
    ),
    "data list": _verb(
        "datasets.episodes",
        "datasets.review:DataListConfig",
        "train",
        "list the episodes of a dataset: length, success, human frames, size, task",
        "robo-rl data list path=data/peg20",
        "robo-rl data list path=data/peg20 json=true",
    ),
    "data show": _verb(
        "datasets.show",
        "datasets.replay:DataShowConfig",
        "train",
        "show one episode: facts as text, images and curves as a picture, or the cameras as a video",
        "robo-rl data show path=data/peg20 episode=3 out=episode.png",
        "robo-rl data show path=data/peg20 episode=3 out=episode.mp4",
    ),
    "data stats": _verb(
        "datasets.stats",
        "datasets.replay:DataStatsConfig",
        "train",
        "print ranges of states and actions, use of the limits, lengths and labels of a dataset",
        "robo-rl data stats path=data/peg20",
    ),
    "data replay": _verb(
        "datasets.replay",
        "datasets.replay:DataReplayConfig",
        "sim",
        "play an episode in the simulator or on a robot, and report the largest difference to the recording",
        "robo-rl data replay path=data/peg20 episode=3",
        "robo-rl data replay path=data/mine episode=3 robot=sim_arm",
    ),
    "data edit": _verb(
        "datasets.edit",
        "datasets.review:DataEditConfig",
        "train",
        "delete, relabel or split episodes of a dataset, or undo the last edit",
        "robo-rl data edit path=data/peg20 delete=[3,7-9]",
        "robo-rl data edit path=data/peg20 relabel=[4] success=false task=insert",
        "robo-rl data edit path=data/peg20 split=5 frame=120 dry_run=true",
        "robo-rl data edit path=data/peg20 undo=true",
    ),
    "data merge": _verb(
        "data:merge",
        "schema:DataMergeConfig",
        "train",
        "merge datasets with the same contract into one",
        "robo-rl data merge sources=[data/peg20,runs/residual/episodes] out=data/peg-more",
    ),
    "data validate": _verb(
        "data:validate",
        "schema:DataValidateConfig",
        "train",
        "check every episode of a dataset, and name each fault with its episode",
        "robo-rl data validate path=data/peg20",
    ),
    "data repair": _verb(
        "datasets.repair",
        "datasets.replay:DataRepairConfig",
        "train",
        "repair a dataset where its rows are intact, and say why the rest cannot be repaired",
        "robo-rl data repair path=data/peg20 dry_run=true",
        "robo-rl data repair path=data/peg20 drop=true",
    ),
    "train": _verb(
        "train",
        "train:TrainConfig",
        "train",
        "train a base policy (flow or diffusion) on a dataset, or a flight policy from scratch by task=",
        "robo-rl train data=data/peg20 out=runs/base",
        "robo-rl train data=data/peg20 out=runs/base resume=true",
        "robo-rl train task=race out=runs/race",
    ),
    "pretrain": _verb(
        "pretrain",
        "train:PretrainConfig",
        "train",
        "learn a picture encoder from the pictures of a dataset alone, for train image.init=",
        "robo-rl pretrain data=data/mt6 out=runs/video",
    ),
    "overlay": _verb(
        "overlay",
        "datasets.overlay:OverlayConfig",
        "sim",
        "draw a robot arm over the hand in videos of people, for pretrain on the result",
        "robo-rl overlay data=data/hands robot=arm6 out=data/overlaid",
    ),
    "finetune": _verb(
        "finetune",
        "finetune:FinetuneVerb",
        "train",
        "improve a base policy by reinforcement learning on the task's success",
        "robo-rl finetune base=runs/base/policy demos=data/peg20 out=runs/tuned",
        "robo-rl finetune base=runs/base/policy method=steering out=runs/steered",
    ),
    "fly": _verb(
        "fly",
        "fly:FlyConfig",
        "train",
        "train a quadcopter policy in simulation, film it, and export it as a bundle and as C code",
        "robo-rl fly task=hover",
        "robo-rl fly task=hover craft=cf21 randomize=0.1 seeds=3 out=runs/cf21",
    ),
    "vision": _verb(
        "vision",
        "vision:VisionConfig",
        "pybullet",
        "train a student that hovers by an onboard camera in PyBullet, from a teacher with the exact state",
        "robo-rl vision",
        "robo-rl vision seeds=3 camera_hz=25 out=runs/vision3",
    ),
    "mission": _verb(
        "mission",
        "mission:MissionConfig",
        "train",
        "plan and fly missions written in signal temporal logic, in random scenes",
        "robo-rl mission",
        "robo-rl mission missions=[patrol,mine.yaml] run=runs/eight",
    ),
    "transfer": _verb(
        "transfer",
        "transfer:TransferConfig",
        "pybullet",
        "run a quadcopter or arm policy, unchanged, in another engine on the same starts, and measure "
        "the loss",
        "robo-rl transfer run=runs/fly",
        "robo-rl transfer run=runs/peg-auto engines=mujoco,pybullet",
        "robo-rl transfer bundle=runs/fly/bundle effects=ground,drag height_m=0.3 pretty=true",
    ),
    "identify": _verb(
        "identify",
        "identify:IdentifyConfig",
        "sim",
        "fit the simulated arm's servos and delay to recorded motion, and test the fit on other motion",
        "robo-rl identify data=data/real out=runs/identify",
    ),
    "swarm": _verb(
        "swarm",
        "swarm:SwarmConfig",
        "train",
        "train one policy for a swarm of quadcopters among obstacles, and measure it on unseen worlds",
        "robo-rl swarm drones=8 density=0.2",
        "robo-rl swarm drones=8 density=0.2 also=[16x40,32x80] seeds=3 out=runs/swarm3",
    ),
    "distill": _verb(
        "distill",
        "distill:DistillVerb",
        "train",
        "distil a policy into a head that needs one network call per decision",
        "robo-rl distill teacher=runs/tuned/policy out=runs/head",
    ),
    "evaluate": _verb(
        "evaluate",
        "schema:EvaluateConfig",
        "sim",
        "measure success with its 95 % interval, and compare two policies on the same seeds",
        "robo-rl evaluate policy=runs/tuned/policy episodes=100",
        "robo-rl evaluate policy=runs/head/policy against=runs/tuned/policy episodes=200",
    ),
    "export": _verb(
        "export",
        "schema:ExportConfig",
        "train",
        "write a bundle: weights, ONNX graph and the manifest of its contract",
        "robo-rl export policy=runs/head/policy out=runs/head/bundle",
    ),
    "import-policy": _verb(
        "import_policy",
        "schema:ImportPolicyConfig",
        "train",
        "take a diffusion policy on states from a LeRobot checkpoint, number for number",
        "robo-rl import-policy source=outputs/last/pretrained_model rate_hz=10 out=runs/imported",
        "robo-rl import-policy source=pretrained_model env=pusht/state steps=10 out=runs/imported",
    ),
    "serve": _verb(
        "serve",
        "schema:ServeConfig",
        None,
        "serve a policy to other processes or machines, which use it as policy=remote:<host>:<port>",
        "robo-rl serve policy=runs/head/bundle",
        "robo-rl serve policy=runs/vla host=0.0.0.0 token=secret.txt",
        "robo-rl serve policy=pretrained_model python=lerobot-env/bin/python rate_hz=30",
    ),
    "run": _verb(
        "run",
        "schema:RunConfig",
        "sim",
        "run a bundle in closed loop at its rate, and report missed deadlines",
        "robo-rl run bundle=runs/head/bundle episodes=3",
        "robo-rl run bundle=runs/reach/bundle robot=sim_arm episodes=3",
    ),
    "contract": _verb(
        "contract",
        "schema:ContractConfig",
        "robot",
        "compare a bundle with a robot before anything moves: joints, limits, rates, cameras, link",
        "robo-rl contract bundle=runs/reach/bundle robot=sim_arm",
        "robo-rl contract bundle=runs/link/bundle robot=crazyflie",
    ),
    "up": _verb(
        "up",
        "up:UpConfig",
        "dds",
        "start a set of robot nodes without ROS, one process each, that talk as ROS 2 does",
        "robo-rl up arm_sim",
        "robo-rl up arm_sim bundle=runs/reach/bundle record=recordings",
        "robo-rl up arm_sim device=keyboard record=recordings",
        "robo-rl up quad_sim bundle=runs/fly/bundle",
    ),
    "record": _verb(
        "record",
        "record:RecordConfig",
        "dds",
        "drive an arm and record episodes on a page in the browser, take over from a policy, review, train",
        "robo-rl record robot=sim_arm",
        "robo-rl record robot=sim_arm out=data/peg operator=ann",
        "robo-rl record robot=mine.yaml driver=ur.yaml out=data/mine",
        "robo-rl record robot=mine.yaml attach=true ui=terminal",
    ),
    "call": _verb(
        "call",
        "up:CallConfig",
        "dds",
        "call a service of a running node: arm or stop the filter, start or save a recording",
        "robo-rl call safety_filter/arm",
        "robo-rl call recorder/success",
    ),
    "topic list": _verb(
        "topic:list_topics",
        "up:TopicListConfig",
        "dds",
        "list the topics of running nodes with types, publishers and subscribers, without ROS",
        "robo-rl topic list",
    ),
    "topic info": _verb(
        "topic:info",
        "up:TopicInfoConfig",
        "dds",
        "describe a topic: its type, and the quality of service of each publisher and subscriber",
        "robo-rl topic info command/safe",
    ),
    "topic echo": _verb(
        "topic:echo",
        "up:TopicEchoConfig",
        "dds",
        "print the messages of a topic, with long arrays shortened",
        "robo-rl topic echo joint_states",
        "robo-rl topic echo camera/view/image_raw count=1",
    ),
    "topic hz": _verb(
        "topic:hz",
        "up:TopicHzConfig",
        "dds",
        "measure a topic: rate, jitter, bytes per second",
        "robo-rl topic hz joint_states",
    ),
    "runs": _verb(
        "list_runs",
        "history:RunsConfig",
        "train",
        "list the runs below a folder with their success and the settings in which they differ",
        "robo-rl runs",
        "robo-rl runs path=runs/peg json=true",
    ),
    "compare": _verb(
        "compare",
        "history:CompareConfig",
        "train",
        "plot learning curves of runs with intervals, and print their success",
        "robo-rl compare runs/steered runs/residual",
        "robo-rl compare runs=[runs/a,runs/b] out=runs/ab",
    ),
    "push": _verb(
        "push",
        "history:PushConfig",
        "hub",
        "upload a run, policy, bundle or dataset to the Hugging Face Hub, private unless private=false",
        "robo-rl push path=runs/head/bundle repo=me/peg-head",
        "robo-rl push path=data/peg20 repo=me/peg20",
    ),
    "pull": _verb(
        "pull",
        "history:PullConfig",
        "hub",
        "download what `push` uploaded into a new folder, checked before it appears",
        "robo-rl pull repo=me/peg-head out=runs/peg-head",
        "robo-rl pull repo=me/peg20 kind=dataset out=data/peg20",
    ),
    "info": _verb(
        "info",
        "schema:InfoConfig",
        None,
        "print versions, and the names of environments, policies and methods",
        "robo-rl info",
        "robo-rl info json=true",
    ),
}
