"""A base policy with a small network that corrects each action (residual off-policy RL, ResFiT, ResiP)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from policies.observation import ObsEncoder
from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import (
    TunedPolicy,
    joined_condition,
    parts,
    rebuild,
    rebuilt_encoder,
    refine_from,
    split_features,
)
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor
from robo_rl.nets.critic import CriticEnsemble


class ResidualPolicy(TunedPolicy):
    """action = clamp(base + scale * actor(obs, base), -1, 1), per step or per executed chunk.

    gate: critics of the actor's training. A correction is used only if its Q exceeds that of the base's own
    action by the gate's margin (`CriticEnsemble.compare`). A new actor reproduces the base bit for bit.
    `base` may itself be steered or corrected. encoder: learned with the actor's critics, for actor and gate;
    None: they see the base's features.
    """

    kind = "residual"

    def __init__(
        self,
        base: SavedPolicy,
        actor: Actor,
        action_map: ResidualMap,
        gate: CriticEnsemble | None = None,
        encoder: ObsEncoder | None = None,
    ) -> None:
        super().__init__(base)
        self.actor, self.map, self.gate, self.encoder = actor, action_map, gate, encoder
        self.reads_every_step |= action_map.timescale == "step"

    def encode(self, obs: Obs) -> Any:
        """Condition of the base, which plan and actor share, with the features of the actor's own encoder."""
        return joined_condition(self.base, self.encoder, obs)

    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        condition, seen = split_features(self.encoder, features)
        chunk = self.base.sample_from(condition, noise)
        if self.map.timescale == "step":
            return chunk
        executed = self._correct(seen, chunk[:, : self.map.steps].flatten(1))
        return torch.cat(
            [executed.view(chunk.shape[0], self.map.steps, -1), chunk[:, self.map.steps :]], dim=1
        )

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        action = self.base.refine(obs, action)
        if self.map.timescale != "step":
            return action
        seen: Tensor = self.base.features(obs) if self.encoder is None else self.encoder(obs)
        return self._correct(seen, action)

    def refine_from(self, features: Any, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """`refine` from the condition of an observation."""
        condition, seen = split_features(self.encoder, features)
        action = refine_from(self.base, condition, action)
        return self._correct(seen, action) if self.map.timescale == "step" else action

    def _correct(self, features: Float[Tensor, "b f"], base: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        return corrected(features, base, self.actor, self.map, self.gate)

    def config(self) -> dict[str, Any]:
        gate = None if self.gate is None else self.gate.config()
        return parts(self.base, self.actor, self.encoder) | {"residual": self.map.config(), "gate": gate}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> ResidualPolicy:
        base, actor = rebuild(data)
        action_map = ResidualMap(base.action_spec.dim, **data["residual"])
        return cls(base, actor, action_map, rebuilt_gate(data), rebuilt_encoder(base, data))


def corrected(
    features: Float[Tensor, "b f"],
    base: Float[Tensor, "b k"],
    actor: Actor,
    action_map: ResidualMap,
    gate: CriticEnsemble | None,
) -> Float[Tensor, "b k"]:
    """The base's action with the actor's correction, where the gate prefers it."""
    ours = action_map.to_critic(actor.act(features, base), base)
    if gate is None:
        return ours
    q_ours, q_base = gate.compare(features, ours, base, gate.margin)
    return torch.where((q_ours > q_base).unsqueeze(-1), ours, base)


def rebuilt_gate(data: dict[str, Any]) -> CriticEnsemble | None:
    """The gate with empty weights; older policies call its margin `doubt`."""
    gate = data["gate"]
    if gate is None:
        return None
    return CriticEnsemble(**{"margin" if name == "doubt" else name: value for name, value in gate.items()})
