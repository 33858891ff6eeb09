"""The head of an arm as C: a policy without a base whose actor is a tanh perceptron, physical units in and
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from policies.c.export import CExport, Layers, Physical, write_c_header
from policies.tuned.direct import DirectPolicy
from robo_rl.core.errors import ConfigError


def head_parts(policy: DirectPolicy) -> tuple[list[tuple[Tensor, Tensor]], Tensor, Physical]:
    """(layers, input scale, what stands around them). Raises ConfigError for a network that the C export
    cannot say.
    """
    actor = policy.actor
    if actor is None:
        raise ConfigError("This policy has learned nothing yet: it has no actor to export.")
    config = actor.config
    if config.activation != "tanh" or config.layer_norm or not config.squash:
        raise ConfigError(
            f"The C export knows perceptrons of tanh layers; this actor has activation={config.activation}, "
            f"layer_norm={config.layer_norm}, squash={config.squash}. Train it with tanh, without layer "
            "norm, or run its bundle by ONNX Runtime."
        )
    linears = [module for module in actor.net if isinstance(module, nn.Linear)]
    layers = [(layer.weight.detach(), layer.bias.detach()) for layer in linears]
    layers[-1] = (
        layers[-1][0][: config.dim],
        layers[-1][1][: config.dim],
    )  # a Gaussian actor's spread is for training
    statistics = policy.normalizer.statistics().values()
    center = torch.cat([c.flatten() for c, _ in statistics])
    scale = torch.cat([s.flatten() for _, s in statistics])
    space = policy.action_spec
    physical = Physical(
        center, policy.normalizer.clip * scale, torch.tensor(space.low), torch.tensor(space.high)
    )
    return layers, 1.0 / scale, physical


def write_c_head(
    path: Path, name: str, policy: DirectPolicy, note: Mapping[str, str]
) -> tuple[CExport, Layers, Tensor]:
    """Write the header; returns what a manifest says of it, and what `verify_c_header` compares it with."""
    layers, scale, physical = head_parts(policy)
    examples = 0.5 * torch.randn(4, len(scale), generator=torch.Generator().manual_seed(0)) / scale
    facts = {
        **note,
        "observation": ", ".join(policy.normalizer.keys),
        "action": policy.action_spec.unit or "no unit",
    }
    return write_c_header(path, name, layers, scale, examples, facts, physical=physical), layers, scale
