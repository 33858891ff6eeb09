"""Learner that chooses among draws of a frozen base: best-of-n (QC, IDQL) and edited draws (EXPO).

    n draws of the base ─► edits of each ─► the critics' best: executed, and the next decision of targets

The draws of a decision are its context, stored with it. The actor, where there is one, edits a draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import CandidateMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int
from robo_rl.core.views import ALL, Views
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.mlp import mlp
from robo_rl.nets.optim.flat import FlatAdam
from robo_rl.rl.off_policy.config import READ_BY_CRITICS, LearnerConfig, check_read
from robo_rl.rl.off_policy.critics import QCritics
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import Info, expectile_loss, td_target
from robo_rl.rl.off_policy.networks import drawn_seed

_READ = READ_BY_CRITICS | {"target_subset", "target_reduce", "deploy_target", "expectile"}
_READ_BY_EDITS = _READ | frozenset(
    {
        "activation",
        "actor_norm",
        "actor_reduce",
        "actor_delay",
        "lr_actor",
        "init_std",
        "log_std_min",
        "clip_std",
    }
    | {"alpha", "auto_alpha", "target_entropy", "explore_std", "explore_min_scale", "penalty", "norm_bound"}
)


class CandidateLearner(OffPolicyLearner):
    """Critics that choose among candidates, and an actor that edits them if the map's scale is above 0.

    New critics give 0 for every chunk, so that a new learner takes the base's own draw. With `expectile`
    targets are of a value V(s') that is the expectile of Q over executed chunks (IQL); else of the best
    candidate.
    """

    def __init__(
        self,
        obs_dim: int,
        action_map: CandidateMap,
        cfg: LearnerConfig,
        generator: torch.Generator,
        views: Views = ALL,
    ) -> None:
        if cfg.conservative > 0.0 or cfg.gate or cfg.critic_loss != "mse" or cfg.target_draws > 1:
            raise ConfigError(
                "Candidates are chosen by critics of squared errors: set method.learner.critic_loss=mse, "
                "conservative=0, target_draws=1 and gate=false."
            )
        edited = action_map.scale > 0.0
        check_read(
            cfg, _READ_BY_EDITS if edited else _READ,
            f"The choice among draws of the base{'' if edited else ', which has no actor (map.edit=0),'}",
        )  # fmt: skip
        steps = action_map.steps
        edits = ResidualMap(action_map.critic_dim // steps, action_map.scale or 1.0, steps)
        super().__init__(obs_dim, edits, cfg, generator, views)
        self.map: CandidateMap = action_map
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(drawn_seed(generator))
            hidden = tuple(cfg.critic_hidden or cfg.hidden)
            value = mlp(views.critic_width(obs_dim), hidden, 1, layer_norm=cfg.layer_norm)
        self.value = value.to(self.context.device)
        self.value_opt = self.context.adam(self.value, cfg.lr_critic)
        self._forget()

    def _forget(self) -> None:
        """Make all critics give 0."""
        assert isinstance(self.critics, QCritics)
        with torch.no_grad():
            for critic in (self.critics.critic, self.critics.target):
                critic.weights[-1].zero_()
                critic.biases[-1].zero_()

    # Acting

    @torch.no_grad()
    def act(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], explore: bool
    ) -> Float[Tensor, "b d"]:
        """The candidate with the highest Q. Exploration samples the edits."""
        index, edit = self._best(obs, ctx, self.critic, explore)
        return self.map.chosen(index, edit)

    def _best(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], critic: CriticEnsemble, explore: bool
    ) -> tuple[Int[Tensor, " b"], Float[Tensor, "b k"]]:
        """(number of the draw, its edit): the best of all draws, as they are and edited."""
        draws, n, state = self.map.candidates(ctx), self.map.count, self.context.critic_input(obs)
        none = torch.zeros_like(draws)
        if self.map.scale == 0.0:
            index = critic.best_of(state, draws)
            return index, none[:, 0]
        x = self.context.actor_input(obs.unsqueeze(1).expand(-1, n, -1).flatten(0, 1), draws.flatten(0, 1))
        edit = self.exploration.act(self.actor, x) if explore else self.actor.mode(x)
        edits = torch.cat([none, edit.view(draws.shape)], dim=1)
        index = critic.best_of(state, self.map.edited(draws.repeat(1, 2, 1), edits))
        return index % n, edits[torch.arange(len(obs), device=obs.device), index]

    def _acting_names(self) -> tuple[str, ...]:
        return ("actor", "critic")

    # Learning

    @torch.no_grad()
    def target_of(self, batch: Batch) -> tuple[Tensor, Info]:
        """TD target from the best next candidate, or from the expectile value."""
        if self.cfg.expectile > 0.0:
            following = self.value(self.context.critic_input(batch.next_obs)).squeeze(-1)
            return td_target(batch.reward, batch.discount, following), {}
        index, edit = self._best(batch.next_obs, batch.next_ctx, self.critics.bootstrap_gate, True)
        return self._backup(batch, self.map.chosen(index, edit)), {}

    @torch.no_grad()
    def base_target_of(self, batch: Batch) -> Tensor:
        """TD target with the base's own next draw."""
        return self._backup(batch, batch.reward.new_zeros(len(batch.reward), self.map.dim))

    def _backup(self, batch: Batch, u: Float[Tensor, "b d"]) -> Tensor:
        assert isinstance(self.critics, QCritics)
        action = self.map.to_critic(u, batch.next_ctx)
        return self.critics.bootstrap(batch, action, 0.0)

    def update_number(self, number: int, batch: Batch, logs: bool = True) -> Info:
        info = super().update_number(number, batch, logs)
        return info | self._fit_value(batch) if self.cfg.expectile > 0.0 else info

    def burn_in(self, batch: Batch, monte_carlo: bool) -> Info:
        info = super().burn_in(batch, monte_carlo)
        return info | self._fit_value(batch) if self.cfg.expectile > 0.0 else info

    def _fit_value(self, batch: Batch) -> Info:
        """One step of V to the expectile of the target critics' lowest Q of executed chunks."""
        assert isinstance(self.critics, QCritics)
        state = self.context.critic_input(batch.obs)
        with torch.no_grad():
            q = self.critics.target(state, batch.critic_action).amin(dim=0)
        loss = expectile_loss(q - self.value(state).squeeze(-1), self.cfg.expectile)
        self.value_opt.descend(loss)
        return {"critic/value_loss": loss.detach()}

    def update_actor(self, batch: Batch, logs: bool = True) -> Info:
        """One step of the edits up the critics, each of a random draw; nothing without edits."""
        if self.map.scale == 0.0:
            return {}
        draws, device = self.map.candidates(batch.ctx), batch.reward.device
        index = torch.randint(self.map.count, (len(draws),), generator=self.generator, device=device)
        return super().update_actor(replace(batch, ctx=draws[torch.arange(len(draws), device=device), index]))

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Info:
        """Mean Q of the base's own draw and of the best candidate, in the states of a batch."""
        state = self.context.critic_input(batch.obs)
        index, edit = self._best(batch.obs, batch.ctx, self.critic, False)
        u = self.map.chosen(index, edit)
        named = {"critic/q_base": torch.zeros_like(u), "critic/q_actor": u}
        q = {
            name: self.critic(state, self.map.to_critic(each, batch.ctx)).mean()
            for name, each in named.items()
        }
        return q | {"actor/own_draw": (index == 0).float().mean()}

    # Saving

    def _networks(self) -> dict[str, nn.Module]:
        return super()._networks() | {"value": self.value}

    def _optimizers(self) -> dict[str, FlatAdam]:
        return super()._optimizers() | {"value_opt": self.value_opt}

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        super().load_weights(weights)
        if weights is None:
            self._forget()
