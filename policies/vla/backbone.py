"""Prefix network of a vision-language-action policy: `policy.backbone=tiny` or the folder of a model."""

from __future__ import annotations

from collections.abc import Sequence

from policies.vla.config import VlaConfig
from policies.vla.pictures import Side
from policies.vla.pretrained import PretrainedBackbone
from policies.vla.tiny import TinyBackbone
from robo_rl.core.errors import ConfigError

TINY = "tiny"


def make_backbone(
    sides: list[Side], config: VlaConfig, vocabulary: Sequence[str]
) -> TinyBackbone | PretrainedBackbone:
    """Prefix network for pictures of these sizes. Raises ConfigError for settings without effect.

    vocabulary: words of the training instructions, for policy.tokens=words.
    """
    if config.backbone != TINY:
        if config.tokens != VlaConfig.tokens:
            raise ConfigError(
                f"policy.tokens={config.tokens} is for policy.backbone={TINY} and has no effect on "
                "pretrained weights, which bring their tokenizer. Leave it out."
            )
        if config.memory:
            raise ConfigError(
                f"policy.memory={config.memory} needs policy.backbone={TINY}: moment tokens are not put into "
                "the prompts of pretrained models. Leave it out."
            )
        if config.spatial:
            raise ConfigError(
                f"policy.spatial={config.spatial:g} needs policy.backbone={TINY}, whose key points it reads. "
                "Leave it out."
            )
        if config.film:
            raise ConfigError(
                f"policy.film=true needs policy.backbone={TINY}, whose convolutions it changes. Leave it out."
            )
        return PretrainedBackbone(sides, config)
    for key in ("backbone_layers", "lora"):
        if getattr(config, key):
            raise ConfigError(
                f"policy.{key}={getattr(config, key)} is for pretrained weights and has no effect on "
                f"policy.backbone={TINY}. Leave it out, or give policy.backbone=<folder>."
            )
    return TinyBackbone(sides, config, vocabulary)
