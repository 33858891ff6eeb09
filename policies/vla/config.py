"""Settings of vision-language-action policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from policies.base.flow import FlowConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings, one_of, setting


@dataclass
class VlaFlowConfig(FlowConfig):
    """Flow of a VLA: preconditioned velocity, and pi0's Beta(1.5, 1) times (Black et al. 2024)."""

    prediction: str = setting(
        "preconditioned", "network output: velocity, sample (the action) or preconditioned"
    )
    time_power: float = setting(1.5, "p of the density p t^(p-1) of training times; 1 is uniform")


@dataclass
class VlaConfig:
    """`policy=vla`: pictures, an instruction and states -> chunk of actions."""

    name: str = "vla"
    backbone: str = setting(
        "tiny",
        "prefix network: tiny, with new weights, or the folder of a pretrained SmolVLM2, PaliGemma, "
        "Qwen2.5-VL or Qwen3-VL",
    )
    backbone_layers: int = setting(
        0, "with a pretrained backbone, layers of its text model, from the first; 0: all", at_least=0
    )
    lora: int = setting(
        0, "with a pretrained backbone, rank of LoRA adapters in its text model; 0: frozen", at_least=0
    )
    memory: int = setting(
        0, "earlier decisions that the policy remembers; 0: it sees the newest observation alone", at_least=0
    )
    moments: int = setting(2, "tokens that a memory keeps of a decision", at_least=1, at_most=64)
    moment_steps: int = setting(
        0,
        "with a memory, first updates, in which its tokens alone learn, by a contrastive loss; 0: none",
        at_least=0,
    )
    width: int = setting(96, "width of prefix and action expert, divisible by heads", at_least=8)
    layers: int = setting(3, "layers of prefix and action expert", at_least=1, at_most=100)
    heads: int = setting(4, "attention heads", at_least=1)
    kv_heads: int = setting(2, "heads of keys and values, a divisor of heads", at_least=1)
    crop: float = setting(
        0.9,
        "side of a picture's crop over its side: random in training, else central",
        above=0.0,
        at_most=1.0,
    )
    tokens: str = one_of(
        "words",
        "bytes",
        help="tokens of the tiny backbone's instruction: words of the training data, or bytes",
    )
    rewording: float = setting(
        1.0,
        "fraction of training windows told in a random wording, among those of their task in the data",
        at_least=0.0,
        at_most=1.0,
    )
    word_dropout: float = setting(
        0.1, "chance that a word of a training instruction becomes a random one", at_least=0.0, at_most=1.0
    )
    word_insertions: int = setting(
        4, "random words put into a training instruction, at most", at_least=0, at_most=20
    )
    spatial: float = setting(
        0.0,
        "weight of the loss on where in the pictures to act, which then conditions the actions; 0: none",
        at_least=0.0,
    )
    film: bool = setting(
        False, "tiny backbone: the words scale and shift the channels of the pictures' convolutions"
    )
    head: str = one_of(
        "flow", "tokens", help="actions by flow matching, or token by token, each number of the chunk in bins"
    )
    bins: int = setting(256, "head=tokens: bins of each number of an action", at_least=2)
    draws: int = setting(
        2, "head=flow: noise draws for each window of a batch, which share its prefix", at_least=1
    )
    experts: list[list[int]] = setting(
        [],
        "head=flow: dimensions of the action of each action expert, e.g. [[0,1,2],[3]] for arm and hand; "
        "empty: one expert for all",
    )
    process: VlaFlowConfig = field(default_factory=VlaFlowConfig)


@dataclass(frozen=True)
class JointSizes:
    """Sizes of a network that several embodiments share, and which of them a policy is for.

    An action or a state with fewer numbers is padded with zeros, and the state ends with a one-hot vector of
    the embodiment. With policy.spatial, points of as many cameras as `pictures` follow it.
    """

    action: int  # dimensions of the widest action
    state: int  # numbers of the longest state
    pictures: tuple[tuple[int, int], ...]  # height and width [px] by the place of a camera in the observation
    embodiment: int  # from 0
    embodiments: int

    @property
    def inputs(self) -> int:
        """Numbers of the state that the network reads, without points."""
        return self.state + self.embodiments

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JointSizes:
        return cls(**{**data, "pictures": tuple((int(h), int(w)) for h, w in data["pictures"])})


def check_config(config: VlaConfig, chunk: int, execute: int) -> None:
    """Raise ConfigError for sizes that do not fit together."""
    check_settings(config, "policy.")
    check_action_head(config)
    check_moment_steps(config)
    if not 1 <= execute <= chunk:
        raise ConfigError(f"A policy needs 1 <= execute <= chunk, found execute={execute}, chunk={chunk}.")
    if config.width % (2 * config.heads) or config.heads % config.kv_heads:
        raise ConfigError(
            f"policy.width={config.width} must be divisible by 2 * heads={2 * config.heads}, and "
            f"policy.heads={config.heads} by kv_heads={config.kv_heads}."
        )


def check_moment_steps(config: VlaConfig) -> None:
    """Raise ConfigError if there are no moment tokens to learn."""
    if config.moment_steps and not config.memory:
        raise ConfigError(
            f"policy.moment_steps={config.moment_steps} trains the tokens of a memory and needs "
            "policy.memory > 0, found 0."
        )


def check_action_head(config: VlaConfig) -> None:
    """Raise ConfigError for settings of the other head, which have no effect."""
    plain = VlaConfig()
    others = ("process", "draws", "experts") if config.head == "tokens" else ("bins",)
    for key in others:
        if getattr(config, key) != getattr(plain, key):
            raise ConfigError(f"policy.{key} has no effect with policy.head={config.head}. Leave it out.")


def check_joint(config: VlaConfig) -> None:
    """Raise ConfigError for settings that do not work with several embodiments."""
    plain = VlaConfig()
    for key in ("memory", "experts", "head"):
        if (found := getattr(config, key)) != getattr(plain, key):
            raise ConfigError(
                f"policy.{key}={found} cannot be used with several embodiments. Leave it out, or give data= "
                "of one robot."
            )
