"""A residual policy whose corrections see the simulator's true state, and which only a simulator can run.

It learns faster than one that sees pictures, which only its base reads, once per plan. Others learn from its
episodes, as a vision-language-action policy does in PLD (Xiao et al. 2025, 2511.00091).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import TunedPolicy, parts, rebuild
from policies.tuned.residual import corrected, rebuilt_gate
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ArraySpec, sense_of
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.actor import Actor
from robo_rl.nets.critic import CriticEnsemble

SENSES = ("state", "privileged")


class TrueState(nn.Module):
    """obs (b, To, *shape) -> (b, f): the newest numbers of `spec`, normalised and side by side.

    spec: observations that a robot measures as well (`state`) and those that only a simulator knows
    (`privileged.<name>`). normalizer: of exactly these; None: one that changes nothing within its clamp.
    """

    def __init__(self, spec: Mapping[str, ArraySpec], normalizer: Normalizer | None = None) -> None:
        super().__init__()
        self.spec = dict(spec)
        shapes = {key: array.shape for key, array in spec.items()}
        self.normalizer = Normalizer(shapes) if normalizer is None else normalizer
        self.dim = sum(math.prod(array.shape) for array in spec.values())

    def forward(self, obs: Obs) -> Float[Tensor, "b f"]:
        newest = {key: obs[key][:, -1] for key in self.spec if key in obs}
        values = self.normalizer.normalize(newest)
        return torch.cat([values[key].flatten(1) for key in self.spec], dim=-1)

    def states(self, obs: Obs) -> Float[Tensor, "b f"]:
        """What a replay holds of an observation."""
        flat: Tensor = self(obs)
        return flat

    def to_json(self) -> dict[str, Any]:
        """Argument of `from_json`, without statistics, which are weights."""
        return {key: [list(array.shape), array.dtype, array.unit] for key, array in self.spec.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrueState:
        return cls({key: ArraySpec(tuple(shape), dtype, unit) for key, (shape, dtype, unit) in data.items()})


class PrivilegedPolicy(TunedPolicy):
    """action = clamp(base + scale * actor(true state, base), -1, 1), at every step.

    gate: as in `ResidualPolicy`. encoder: what actor and gate see. A new actor reproduces the base bit for
    bit.
    """

    kind = "privileged"

    def __init__(
        self,
        base: SavedPolicy,
        actor: Actor,
        action_map: ResidualMap,
        gate: CriticEnsemble | None,
        encoder: TrueState,
    ) -> None:
        super().__init__(base)  # `reads_every_step` is of pictures: the numbers are always new
        self.actor, self.map, self.gate, self.encoder = actor, action_map, gate, encoder
        self.obs_spec = {**base.obs_spec, **encoder.spec}

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        true: Tensor = self.encoder(obs)
        return true

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self.base.sample(obs, noise)

    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self.base.sample_from(features, noise)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return corrected(self.encoder(obs), self.base.refine(obs, action), self.actor, self.map, self.gate)

    def config(self) -> dict[str, Any]:
        gate = None if self.gate is None else self.gate.config()
        own = {"residual": self.map.config(), "gate": gate, "true_state": self.encoder.to_json()}
        return parts(self.base, self.actor) | own

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> PrivilegedPolicy:
        base, actor = rebuild(data)
        action_map = ResidualMap(base.action_spec.dim, **data["residual"])
        return cls(base, actor, action_map, rebuilt_gate(data), TrueState.from_json(data["true_state"]))


def true_spec(obs: Mapping[str, ArraySpec]) -> dict[str, ArraySpec]:
    """The numbers among the observations of a simulator, in the order of their names."""
    return {key: array for key, array in sorted(obs.items()) if sense_of(key, array) in SENSES}


def check_measurable(policy: Any, what: str) -> None:
    """Raise ConfigError for a policy that reads the true state. what: the thing that cannot be done."""
    if hidden := [key for key, array in policy.obs_spec.items() if sense_of(key, array) == "privileged"]:
        raise ConfigError(
            f"{what} needs a policy of what the robot measures, but this one also reads {hidden}, which only "
            "the simulator knows. Record its episodes by robo-rl collect policy=... and train a policy on "
            "them."
        )
