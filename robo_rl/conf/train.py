"""Settings of `robo-rl pretrain` and `robo-rl train`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from policies.base.diffusion import DiffusionConfig
from policies.base.flow import FlowConfig
from policies.base.process import ProcessConfig
from policies.pretraining.trainer import VideoValuesConfig
from policies.training.base import BaseTrainConfig
from policies.vla.config import VlaConfig
from robo_rl.conf.fields import REQUIRED, logger_setting, one_of, setting, variant
from robo_rl.data.normalizer import ACTION_RANGES
from robo_rl.data.selection import RULES
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.point_encoder import PointEncoderConfig
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.transformer import TransformerConfig
from robo_rl.nets.unet1d import Unet1dConfig

NETS = {"mlp": MlpDenoiserConfig, "unet1d": Unet1dConfig, "transformer": TransformerConfig}
PROCESSES = {"flow": FlowConfig, "diffusion": DiffusionConfig}


@dataclass
class GenerativeChoice:
    """`policy=generative`: encoder x net x process, from the groups net, process, image and points."""

    name: str = "generative"


POLICIES = {"generative": GenerativeChoice, "vla": VlaConfig}


@dataclass
class VideoValuesChoice:
    """`method=video_values`: values of frames for goals, by TD over frames."""

    name: str = "video_values"


@dataclass
class PretrainConfig(VideoValuesConfig):
    """`robo-rl pretrain`: data, picture encoder and training."""

    data: str = setting(REQUIRED, "dataset, or [a,b] of several; only its pictures are read")
    camera: str | None = setting(
        None, "camera to learn from, such as image.corner3; none: all, which then have one size"
    )
    learn_from: str = one_of(
        "all", "unfailed", "success", help="episodes to learn from; failed ones show motion, too"
    )
    out: str = setting(REQUIRED, "folder of the run")
    method: VideoValuesChoice = variant(
        {"video_values": VideoValuesChoice}, "what is learned; video_values: values of frames for goals"
    )
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the run in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`; it is deleted when the new one is done")
    device: str = setting("auto", "device: auto, cpu, cuda or cuda:<number>")
    threads: int = setting(0, "threads of torch on the CPU; 0: torch's own number", at_least=0)
    num_workers: int = setting(0, "number of processes that read pictures", at_least=0)
    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)


@dataclass
class StartedImageConfig(ImageEncoderConfig):
    """Encoder of camera images, and the weights that it starts from."""

    init: str | None = setting(
        None, "run of robo-rl pretrain whose encoder every camera starts from; none: random weights"
    )


@dataclass
class TrainConfig(BaseTrainConfig):
    """`robo-rl train`: data, policy and training."""

    data: str = setting(REQUIRED, "dataset, or [a,b] of several; left out with task=<a flight>")
    learn_from: str = one_of(
        *RULES,
        help="episodes to learn from; unfailed: complete ones without a failure label; success: those with a "
        "success label; all: every one",
    )
    learn_steps: str = one_of(
        "all",
        "human",
        help="steps at which learned chunks begin: all, or in episodes with interventions only those in "
        "which a human, or a teacher, acted",
    )
    action_range: str = one_of(
        *ACTION_RANGES,
        help="actions that a policy's [-1, 1] stands for; limits: those of the dataset's contract; data: the "
        "range of the recorded actions and a margin; auto: data for recordings of a robot, else limits",
    )
    range_floor: float = setting(
        0.0,
        "smallest range by which a dimension of a state is scaled, in its own unit (m, rad); 0: its range in "
        "the data",
        at_least=0.0,
    )
    init: str | None = setting(
        None,
        "run or policy that is trained further, with its shape, normaliser and action limits; none: a new "
        "policy",
    )
    out: str = setting(REQUIRED, "folder of the run")
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the run in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`; it is deleted when the new one is done")
    device: str = setting("auto", "device: auto, cpu, cuda or cuda:<number>")
    threads: int = setting(
        0, "threads of torch on the CPU; 0: one, with images torch's own number", at_least=0
    )
    launcher: str = one_of(
        "none", "torchrun", help="starts the processes that train together on this machine; none: one process"
    )
    processes: int = setting(
        0,
        "processes with launcher=torchrun, each with batch_size / processes windows per step; 0: one per GPU",
        at_least=0,
    )
    shard: bool = setting(
        False,
        "with several processes: each holds a part of weights, gradients and moments (FSDP2), for policies "
        "that do not fit otherwise",
    )
    num_workers: int = setting(
        0, "number of processes that read images; states are kept in memory", at_least=0
    )
    obs_steps: int = setting(1, "To: number of observations in the policy's input, newest last", at_least=1)
    chunk: int = setting(8, "Tp: number of actions in a predicted chunk", at_least=1)
    execute: int = setting(8, "Ta: number of actions executed before the next prediction", at_least=1)
    policy: Any = variant(POLICIES, "kind of policy; vla reads pictures and an instruction")
    process: ProcessConfig = variant(PROCESSES, "generative process that turns noise into a chunk")
    net: NetConfig = variant(NETS, "network of the policy")
    image: StartedImageConfig = field(default_factory=StartedImageConfig)
    points: PointEncoderConfig = field(default_factory=PointEncoderConfig)
