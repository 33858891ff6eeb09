"""Off-policy fine-tuning: collect with the base, pre-train the critics, then act and learn.

    offline_updates ─► base_steps of the base ─► burn_in critic updates ─► online: `utd` updates per step

`state_dict` holds all that changes, so a run that was killed and resumed equals an uninterrupted one bit for
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Logger
from robo_rl.core.settings import check_settings, one_of, setting
from robo_rl.nets.optim.graphs import GraphCache
from robo_rl.rl.acting import ActingPolicy
from robo_rl.rl.collect import Experience, Phase
from robo_rl.rl.guard import Guard
from robo_rl.rl.mix import MixConfig, ReplayMix
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.gate import margin_at
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.running import CollectedEpisode, episode_logs
from robo_rl.rl.update_runner import UpdateRunner


@dataclass
class FinetuneConfig:
    """Phases and data of off-policy fine-tuning. The learner has settings of its own."""

    env_steps: int = setting(12_000, "environment steps in total, including the base's", at_least=1)
    offline_updates: int = setting(0, "updates on demonstrations before the first step", at_least=0)
    base_steps: int = setting(
        4_000, "first env_steps, in which the policy of `warmup` acts before learning starts", at_least=0
    )
    warmup: str = one_of(
        "base", "actor", help="policy that acts in base_steps; actor: the learner's, as loaded by `init`"
    )
    warmup_noise: float = setting(
        0.0, "half-width of uniform noise added to the base in base_steps, in units of u", at_least=0.0
    )
    ramp_steps: int = setting(
        0,
        "steps over which the probability that the actor, or the noise of base_steps, acts rises to 1, else "
        "the base acts; 0: it always does",
        at_least=0,
    )
    takeover: float = setting(
        0.0,
        "largest share of an episode in which the base acts before the actor takes over, drawn for each "
        "(PLD); 0: the actor always acts",
        at_least=0.0,
        at_most=1.0,
    )
    progress_weight: float = setting(
        0.0,
        "weight of a reward for progress, potential-based shaping by a model that learns from demos= before "
        "the run; 0: none",
        at_least=0.0,
    )
    burn_in: int = setting(3_000, "critic updates after base_steps, before the actor learns", at_least=0)
    burn_in_target: str = one_of(
        "mc", "td", help="mc: Monte-Carlo returns of the base, ended by time-outs; td: bootstrapped"
    )
    utd: float = setting(1.0, "updates per environment step", at_least=0.0)
    updates_per_step: float | None = setting(
        None,
        "updates per step of all environments together, for thousands of them; none: utd * num_envs",
        at_least=0.0,
    )
    resets: list[int] = setting(
        [],
        "environment steps after which actor, critics, optimisers and multipliers start anew, while the "
        "replay stays (BRO)",
        at_least=1,
    )
    replay_capacity: int = setting(200_000, "decisions that each replay buffer holds", at_least=1)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    mix: MixConfig = field(default_factory=MixConfig)
    guard_window: int = setting(40, "training episodes compared with the base's; 0: no guard", at_least=0)
    guard_errors: float = setting(
        2.0, "standard errors below the base at which weights are restored", at_least=0.0
    )


def check_steps_left(config: FinetuneConfig, first: str = "the base alone executes") -> None:
    """Raise ConfigError where base_steps take all of env_steps. first: what happens in base_steps."""
    if config.env_steps <= config.base_steps:
        raise ConfigError(
            f"env_steps={config.env_steps} leaves no steps for learning: {first} the first "
            f"{config.base_steps} (base_steps). Raise env_steps, or lower method.base_steps."
        )


def check_resets(config: FinetuneConfig) -> None:
    """Raise ConfigError for resets out of order, or with a guard, which would undo them."""
    if sorted(set(config.resets)) != list(config.resets):
        raise ConfigError(f"method.resets must be environment steps in rising order, found {config.resets}.")
    if config.resets and config.guard_window:
        raise ConfigError(
            "method.resets start the networks anew, and the guard restores earlier ones if success falls: "
            "set method.guard_window=0, or method.resets=[]."
        )


class FineTuner:
    """Runs the phases. `advance` does one control step and the updates that belong to it."""

    def __init__(
        self,
        config: FinetuneConfig,
        collector: Experience,
        learner: OffPolicyLearner,
        mix: ReplayMix,
        generator: torch.Generator,
        logger: Logger | None = None,
        say: Callable[[str], None] = lambda _: None,
        graphs: GraphCache | None = None,
    ) -> None:
        check_settings(config)
        if config.base_steps < 1 and config.burn_in:
            raise ConfigError("burn_in needs data from the base: set base_steps > 0, or burn_in=0.")
        check_steps_left(config)
        if config.offline_updates and "demo" not in mix.fractions:
            raise ConfigError("offline_updates need demonstrations: set method.mix.demo above 0.")
        check_resets(config)
        self.config, self.collector, self.learner, self.mix = config, collector, learner, mix
        if learner.scales is not None:
            for name in {"online", "base"} & mix.stores.keys():
                mix.stores[name].on_add = learner.scales.add
        self.generator, self.logger, self.say = generator, logger, say
        self.guard = Guard(config.guard_window, config.guard_errors) if config.guard_window else None
        per_step = config.updates_per_step
        self._updates_per_step = config.utd * collector.num_lanes if per_step is None else per_step
        self.acting = ActingPolicy(
            learner,
            generator,
            warmup=config.warmup,
            warmup_noise=config.warmup_noise,
            ramp_steps=config.ramp_steps,
        )
        self.runner = UpdateRunner(learner, mix, generator, graphs or GraphCache())
        self.offline, self.burned_in, self.debt, self.reverts = 0, 0, 0.0, 0
        self.resets_done = 0
        self._good: dict[str, Any] | None = None  # weights at the guard's last "good"
        self._last: Info = {}
        self.warned = False  # a warning about diverging critics was given

    @property
    def env_steps(self) -> int:
        return self.collector.env_steps

    @property
    def phase(self) -> Phase:
        if self.offline < self.config.offline_updates:
            return "offline"
        if self.env_steps < self.config.base_steps:
            return "base"
        return "burn_in" if self.burned_in < self.config.burn_in else "online"

    @property
    def done(self) -> bool:
        return self.env_steps >= self.config.env_steps and self.phase == "online"

    def advance(self, most_updates: int = 100) -> list[CollectedEpisode]:
        """Episodes that ended in one step of the collector, or in part of a phase without steps."""
        phase = self.phase
        if phase == "offline":
            self._learn_offline(min(most_updates, self.config.offline_updates - self.offline))
            return []
        if phase == "burn_in":
            self._burn_in(min(most_updates, self.config.burn_in - self.burned_in))
            return []
        if phase == "online":
            self._reset_when_due()
        anchors = self.mix.stores.get("base") if phase == "base" else None
        # `or` would replace an empty store, which is falsy.
        store = self.mix["online"] if anchors is None else anchors
        self.runner.batch = None
        learn = self._learn if phase == "online" else None
        episodes = self.collector.collect(phase, self.acting.policy(phase, self.env_steps), store, learn)
        self._set_gate_margin()
        self._watch(episodes, phase)
        return episodes

    def _set_gate_margin(self) -> None:
        """Set the margin of the deployed gate, which falls with the remaining steps; training ignores it."""
        cfg = self.config
        margin = margin_at(cfg.learner.gate_margin, self.env_steps, cfg.base_steps, cfg.env_steps)
        self.learner.gate.margin = margin

    def _learn_offline(self, updates: int) -> None:
        # All other stores are empty and leave their share to the demonstrations.
        self._last = self._last | self.runner.update(updates)
        before, total = self.offline, self.config.offline_updates
        self.offline += updates
        if self.offline * 10 // total > before * 10 // total:
            self.say(
                f"offline: {self.offline} of {total} updates, mean Q {float(self._last['critic/q']):.3g}"
            )
        if self.offline == total:  # only at the end: logging at a stop would log the same env step twice
            self._log(self._last)

    def _burn_in(self, updates: int) -> None:
        self._last = self.runner.burn_in(updates, self.config.burn_in_target == "mc")
        self.burned_in += updates
        if self.burned_in == self.config.burn_in and self.learner.end_burn_in() and self._good is None:
            self.mark_weights_good()
        self._log(self._last)

    def _learn(self, steps: float = 1.0) -> None:
        """Do the updates that belong to this many steps of all lanes."""
        self.debt += self._updates_per_step * steps
        due = int(self.debt)
        self.debt -= due
        if (end := self.config.learner.lr_end) != 1.0:
            done = min(1.0, self.env_steps / self.config.env_steps)
            self.learner.set_rates(1.0 + (end - 1.0) * done)
        self._last = self._last | self.runner.update(due)

    def _reset_when_due(self) -> None:
        """Start the networks anew if a step of `resets` has been reached since the last call."""
        due = sum(step <= self.env_steps for step in self.config.resets)
        if due > self.resets_done:
            self.learner.renew()
            self.resets_done = due
            self._log({"train/resets": float(due)})

    def mark_weights_good(self) -> None:
        """Make the current weights, of an earlier run or of a burn-in, those that the guard restores."""
        self._good = self.learner.weights()

    def _watch(self, episodes: list[CollectedEpisode], phase: Phase) -> None:
        for values in episode_logs(episodes):
            self._log(values)
        if self.guard is not None:
            for episode in episodes:
                self.guard.add(
                    episode.success,
                    episode.total_reward,
                    of_base=phase == "base",
                    reported=episode.reported,
                )
        if episodes and phase == "online":
            self._log(self._last | self._diagnosis() | {"train/updates": float(self.learner.updates)})
            self._check()

    def _diagnosis(self) -> dict[str, Any]:
        """Logs that reveal divergence: Q of base and actor, and |Q| relative to the largest possible
        return.
        """
        values: dict[str, Any] = (
            {} if self.runner.batch is None else dict(self.learner.diagnose(self.runner.batch))
        )
        weight = self.config.progress_weight  # shaping takes this much from Q at most
        limit = self.collector.reward.largest / max(1.0 - self.config.learner.gamma, 1e-9)
        limit += weight if limit > 0.0 else 0.0
        if limit > 0.0 and "critic/q_abs_max" in self._last:
            limit /= self.learner.reward_unit
            values["critic/q_over_limit"] = over = float(self._last["critic/q_abs_max"]) / limit
            if over > 1.0 and not self.warned:
                self.warned = True
                self.say(
                    f"At {self.env_steps} steps the critics estimate |Q| = {over * limit:.3g}, above the "
                    f"largest possible return r_max / (1 - gamma){' + progress_weight' if weight else ''} = "
                    f"{limit:.3g}: they diverge. Lower "
                    "method.learner.lr_critic or method.learner.alpha."
                )
        return values

    def _check(self) -> None:
        """Save the weights if they do at least as well as the base; restore the last good ones if they do
        worse.
        """
        if self.guard is None:
            return
        verdict = self.guard.verdict()
        if verdict == "good":
            self._good = self.learner.weights()
        if verdict != "bad":
            return
        where = "the start" if self._good is None else "the last good weights"
        self.say(
            f"At {self.env_steps} steps the last {self.guard.window} training episodes "
            f"{self.guard.in_words()}: restoring {where}."
        )
        self.learner.load_weights(self._good)
        self.guard.forget()
        self.reverts += 1
        self._log({"train/reverts": float(self.reverts)})

    def _log(self, values: Mapping[str, Any]) -> None:
        if self.logger is not None:
            self.logger.log(self.env_steps, values)

    def state_dict(self) -> dict[str, Any]:
        """State of everything but the environment, whose snapshot the caller stores."""
        return {
            "learner": self.learner.state_dict(),
            "collector": self.collector.state_dict(),
            "mix": self.mix.state_dict(),
            "generator": self.generator.get_state(),
            "guard": None if self.guard is None else self.guard.state_dict(),
            "good": self._good,
            "last": {name: value.detach().clone() for name, value in self._last.items()},
            "resets_done": self.resets_done,
            "counters": [self.offline, self.burned_in, self.debt, self.reverts, self.warned],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        self.collector.load_state_dict(state["collector"])
        self.mix.load_state_dict(state["mix"])
        self.generator.set_state(state["generator"])
        if self.guard is not None:
            self.guard.load_state_dict(state["guard"])
        self._good = state["good"]
        self._last = dict(state["last"])
        self.resets_done = int(state.get("resets_done", 0))  # older checkpoints have none
        offline, burned_in, self.debt, reverts, warned = state["counters"]
        self.offline, self.burned_in, self.reverts = int(offline), int(burned_in), int(reverts)
        self.warned = bool(warned)
