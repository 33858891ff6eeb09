"""The loop of off-policy fine-tuning: collect with the base, burn the critics in, then act and learn.

    base_steps of the base alone ─► burn_in critic updates ─► online: `utd` updates per environment step

Everything that changes is in `state_dict`, so that a run that was killed and resumed gives the same curve, to the last
bit, as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Logger
from robo_rl.rl.collect import Collector, Episode
from robo_rl.rl.config import LearnerConfig
from robo_rl.rl.guard import Guard
from robo_rl.rl.losses import Info
from robo_rl.rl.mix import MixConfig, ReplayMix
from robo_rl.rl.off_policy import OffPolicyLearner

Phase = Literal["base", "burn_in", "online"]


@dataclass
class FinetuneConfig:
    """Phases and data of off-policy fine-tuning; the learner has its own settings."""

    env_steps: int = 12_000  # environment steps in all, the base's included
    base_steps: int = 4_000  # of these, collected with the base alone
    burn_in: int = 3_000  # critic updates between the two
    burn_in_target: str = "mc"  # mc: Monte-Carlo returns of the base; td: bootstrapped
    utd: float = 1.0  # updates per environment step
    replay_capacity: int = 200_000
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    mix: MixConfig = field(default_factory=MixConfig)
    guard_window: int = 40  # training episodes that are compared with the base's; 0 switches the guard off
    guard_errors: float = 2.0  # standard errors below the base before going back


class FineTuner:
    """Runs the phases. `advance` does one control step, with the updates that belong to it."""

    def __init__(
        self,
        config: FinetuneConfig,
        collector: Collector,
        learner: OffPolicyLearner,
        mix: ReplayMix,
        generator: torch.Generator,
        logger: Logger | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        if config.base_steps < 1 and config.burn_in:
            raise ConfigError("burn_in needs data of the base: set base_steps > 0, or burn_in=0.")
        if config.burn_in_target not in ("mc", "td"):
            raise ConfigError(f"burn_in_target='{config.burn_in_target}' is unknown; use mc or td.")
        self.config, self.collector, self.learner, self.mix = config, collector, learner, mix
        self.generator, self.logger, self.say = generator, logger, say
        self.guard = Guard(config.guard_window, config.guard_errors) if config.guard_window else None
        self.burned_in, self.debt, self.reverts = 0, 0.0, 0
        self._good: dict[str, Any] | None = None  # last good weights
        self._last: Info = {}

    @property
    def env_steps(self) -> int:
        return self.collector.env_steps

    @property
    def phase(self) -> Phase:
        if self.env_steps < self.config.base_steps:
            return "base"
        return "burn_in" if self.burned_in < self.config.burn_in else "online"

    @property
    def done(self) -> bool:
        return self.env_steps >= self.config.env_steps and self.phase == "online"

    def advance(self, burn_in_updates: int = 100) -> list[Episode]:
        """One control step of all lanes, or a piece of the burn-in. Returns the episodes that ended."""
        phase = self.phase
        if phase == "burn_in":
            self._burn_in(min(burn_in_updates, self.config.burn_in - self.burned_in))
            return []
        anchors = self.mix.stores.get("base") if phase == "base" else None
        self.collector.store = anchors or self.mix["online"]
        self.collector.begin(None if phase == "base" else self._explore)
        if phase == "online":
            self._learn()
        episodes = self.collector.finish()
        self._watch(episodes, phase)
        return episodes

    def _explore(self, obs: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        return self.learner.act(obs, ctx, explore=True)

    def _burn_in(self, updates: int) -> None:
        monte_carlo = self.config.burn_in_target == "mc"
        for _ in range(updates):
            self._last = self.learner.burn_in(self._batch(), monte_carlo)
        self.burned_in += updates
        self._log(self._last)

    def _learn(self) -> None:
        self.debt += self.config.utd * self.collector.env.num_envs
        while self.debt >= 1.0:
            self._last = self._last | self.learner.update(self._batch())
            self.debt -= 1.0

    def _batch(self) -> Any:
        cfg = self.config.learner
        return self.mix.sample(
            cfg.batch,
            self.generator,
            gamma=cfg.gamma,
            n_step=cfg.n_step,
            timeout_is_failure=cfg.timeout_is_failure,
        )

    def _watch(self, episodes: list[Episode], phase: Phase) -> None:
        for episode in episodes:
            self._log(
                {
                    "train/success": float(episode.success),
                    "train/episode_steps": float(episode.steps),
                    "train/return": episode.total_reward,
                }
            )
            if self.guard is not None:
                (self.guard.add_base if phase == "base" else self.guard.add)(episode.success)
        if episodes and phase == "online":
            self._log(self._last | {"train/updates": float(self.learner.updates)})
            self._check()

    def _check(self) -> None:
        """Keep weights that do at least as well as the base; go back to them when training does worse."""
        if self.guard is None:
            return
        verdict = self.guard.verdict()
        if verdict == "good":
            self._good = self.learner.weights()
        if verdict != "bad":
            return
        where = "the start" if self._good is None else "the last good weights"
        self.say(
            f"At {self.env_steps} steps the last {self.guard.window} training episodes succeed "
            f"{100 * self.guard.recent_rate:.0f} % of the time, the base {100 * self.guard.base_rate:.0f} %: "
            f"going back to {where}."
        )
        self.learner.load_weights(self._good)
        self.guard.forget()
        self.reverts += 1
        self._log({"train/reverts": float(self.reverts)})

    def _log(self, values: Mapping[str, Any]) -> None:
        if self.logger is not None:
            self.logger.log(self.env_steps, values)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the environment, whose snapshot the caller stores beside it."""
        return {
            "learner": self.learner.state_dict(),
            "collector": self.collector.state_dict(),
            "mix": self.mix.state_dict(),
            "generator": self.generator.get_state(),
            "guard": None if self.guard is None else self.guard.state_dict(),
            "good": self._good,
            "last": {name: float(value) for name, value in self._last.items()},
            "counters": [self.burned_in, self.debt, self.reverts],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        self.collector.load_state_dict(state["collector"])
        self.mix.load_state_dict(state["mix"])
        self.generator.set_state(state["generator"])
        if self.guard is not None:
            self.guard.load_state_dict(state["guard"])
        self._good = state["good"]
        self._last = {name: torch.tensor(value) for name, value in state["last"].items()}
        burned_in, self.debt, reverts = state["counters"]
        self.burned_in, self.reverts = int(burned_in), int(reverts)
