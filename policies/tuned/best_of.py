"""A generative policy whose critics choose among several of its chunks, or edits of them (IDQL, QC, EXPO)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from policies.registry import SavedPolicy, build, describe
from policies.tuned.fine_tuned import TunedPolicy
from robo_rl.core.action_map import CandidateMap
from robo_rl.core.conditioning import pooled
from robo_rl.core.errors import CheckpointError
from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor, ActorConfig, make_actor
from robo_rl.nets.critic import CriticEnsemble

_SEED = 0  # of the noise of further draws


class BestOfPolicy(TunedPolicy):
    """chunk = the draw of the base with the highest Q, of the executed part; edited draws compete with it.

    The first draw is from the noise input, the others are from fixed noise, a table of this policy, so that
    it is a function of (observation, noise). New critics choose the first draw: the base, bit for bit.
    actor: edits a draw, which it receives with the features; unused where the map's scale is 0.
    """

    kind = "best_of"
    others: Tensor

    def __init__(
        self, base: SavedPolicy, critic: CriticEnsemble, action_map: CandidateMap, actor: Actor
    ) -> None:
        super().__init__(base)
        self.critic, self.map = critic, action_map
        self.actor = actor if action_map.scale > 0.0 else None
        shape = (action_map.count - 1, base.chunk, base.action_spec.dim)
        device = next(critic.parameters()).device
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(_SEED))
        self.register_buffer("others", drawn.to(device))

    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        b, n, state = noise.shape[0], self.map.count, pooled(features)
        rows = torch.arange(b, device=noise.device)
        first = self.base.sample_from(features, noise)
        others = self.others.unsqueeze(0).expand(b, -1, -1, -1).flatten(0, 1)
        more = self.base.sample_from(features[rows.repeat_interleave(n - 1)], others)
        draws = torch.cat([first.unsqueeze(1), more.view(b, n - 1, *first.shape[1:])], dim=1)
        executed = draws[:, :, : self.map.steps].flatten(2)
        options = executed
        if self.actor is not None:
            x = state.unsqueeze(1).expand(-1, n, -1).flatten(0, 1)
            edit = self.actor.act(x, executed.flatten(0, 1)).view(executed.shape)
            options = torch.cat([executed, self.map.edited(executed, edit)], dim=1)
        index = self.critic.best_of(state, options)
        part = options[rows, index].view(b, self.map.steps, -1)
        return torch.cat([part, draws[rows, index % n][:, self.map.steps :]], dim=1)

    def config(self) -> dict[str, Any]:
        actor = None if self.actor is None else self.actor.config.to_json()
        critic = self.critic.config()
        return {"base": describe(self.base), "critic": critic, "actor": actor, "map": self.map.config()}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> BestOfPolicy:
        base = build(data["base"])
        if not isinstance(base, SavedPolicy):
            raise CheckpointError(f"The base of kind '{data['base'].get('kind')}' is not a policy.")
        action_map = CandidateMap(base.action_spec.dim, **data["map"])
        critic = CriticEnsemble(**data["critic"])
        unused = ActorConfig("deterministic", 1, 1, (1,))
        actor = make_actor(unused if data["actor"] is None else ActorConfig.from_json(data["actor"]))
        return cls(base, critic, action_map, actor)
