"""Policies by name. A checkpoint stores the name, never an import path.

A policy class has `kind` (its key here), `config() -> dict` of JSON values and the classmethod
`from_config(dict)`, which builds it with empty weights. A policy that wraps another one stores that one's
kind, config and weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import nn

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.registry import OWN, Table, lookup

POLICIES: Table = {
    "generative": ("policies.base.generative:GenerativePolicy", None),
    "vla": ("policies.vla.policy:VlaPolicy", "vla"),
    "imported_diffusion": ("policies.imported.diffusion:ImportedDiffusionPolicy", None),
    "steered": ("policies.tuned.steered:SteeredPolicy", None),
    "residual": ("policies.tuned.residual:ResidualPolicy", None),
    "privileged": ("policies.tuned.privileged:PrivilegedPolicy", None),
    "best_of": ("policies.tuned.best_of:BestOfPolicy", None),
    "direct": ("policies.tuned.direct:DirectPolicy", None),
    "single_step": ("policies.tuned.single_step:SingleStepPolicy", None),
    "one_step": ("policies.tuned.one_step:OneStepPolicy", None),
    "flight": ("policies.flight.policy:FlightPolicy", None),
    "swarm": ("policies.flight.swarm:SwarmPolicy", None),
    "vision": ("policies.flight.vision:VisionPolicy", None),
}


@runtime_checkable
class SavedPolicy(ChunkPolicy, Protocol):
    """A policy that can be stored in a checkpoint; also an nn.Module."""

    kind: str

    def config(self) -> dict[str, Any]: ...


def describe(policy: SavedPolicy) -> dict[str, Any]:
    """{"kind", "config"}: input of `build`, and stored by a policy about the one it wraps."""
    return {"kind": policy.kind, "config": policy.config()}


def build(data: Mapping[str, Any]) -> nn.Module:
    """Policy of a description, with empty weights. Raises UnknownNameError or CheckpointError."""
    cls = lookup("policy kind", POLICIES, str(data.get("kind")), OWN)
    try:
        policy = cls.from_config(data["config"])
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        reason = f"'{error.args[0]}' is missing" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(
            f"The configuration of this '{data.get('kind')}' policy cannot be used: {reason}. It was edited "
            "or written by another version; save the policy again."
        ) from error
    assert isinstance(policy, nn.Module)
    return policy
