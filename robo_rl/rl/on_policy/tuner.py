"""On-policy fine-tuning: roll out, learn, discard the data. The interface is that of `FineTuner`.

    `rollout` control steps per lane ─► advantages ─► at most `epochs` passes ─► the next rollout

`state_dict` holds all that changes: a run that was killed and resumed equals an uninterrupted one bit for
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Logger
from robo_rl.rl.collect import Collector, Phase
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.on_policy.groups import GroupConfig, check_rounds, check_without_critic
from robo_rl.rl.on_policy.ppo import PpoConfig, RewardScale, check_rollout
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import Rollout
from robo_rl.rl.running import CollectedEpisode, episode_logs


class PpoTuner:
    """Drives a collector whose store is `rollout`. `advance` does one control step, and a round of updates
    when due.
    """

    offline = burned_in = 0  # updates without steps, as in FineTuner; PPO has none

    def __init__(
        self,
        config: FinetuneConfig,
        ppo: PpoConfig,
        collector: Collector,
        learner: PpoLearner,
        rollout: Rollout,
        logger: Logger | None = None,
        groups: GroupConfig | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        lanes = collector.env.num_envs
        self.groups = groups or GroupConfig()
        if self.groups.size:
            check_rounds(self.groups, ppo.rollout, lanes, collector.env.spec.max_episode_steps)
            check_without_critic(config.learner, ppo)
        if config.base_steps or config.burn_in:
            raise ConfigError(
                "PPO learns from its own rollouts alone: set method.base_steps=0 and method.burn_in=0."
            )
        if config.ramp_steps or config.takeover:
            raise ConfigError(
                "PPO needs the actor's probability of each action, so the base cannot act in its place: "
                "set method.ramp_steps=0 and method.takeover=0."
            )
        if config.env_steps < ppo.rollout * lanes:
            raise ConfigError(
                f"env_steps={config.env_steps} is less than one rollout of {ppo.rollout} steps in {lanes} "
                "parallel environments. Raise env_steps, or lower method.ppo.rollout."
            )
        # Each lane loses one decision of the previous policy, and its last one is stored only when the next
        # is made.
        steps = collector.base.executor.execute if collector.map.timescale == "chunk" else 1
        check_rollout(ppo, lanes, steps, left_out=1)
        self.config, self.ppo, self.collector = config, ppo, collector
        self.learner, self.rollout = learner, rollout
        self.logger, self._say = logger, say
        self._rounds_without_group = 0  # the last rounds in which no group was complete
        self.total_rounds = config.env_steps // (ppo.rollout * lanes)
        self._scale = (
            RewardScale(lanes, ppo.clip_reward, learner.generator.device) if ppo.normalize_reward else None
        )
        self._steps = 0  # control steps of the running rollout
        collector.writer.store = rollout

    @property
    def env_steps(self) -> int:
        return self.collector.env_steps

    @property
    def phase(self) -> Phase:
        return "online"

    @property
    def done(self) -> bool:
        return self.env_steps >= self.config.env_steps

    def advance(self) -> list[CollectedEpisode]:
        """Episodes that ended in one control step of all lanes. Updates the policy when the rollout is
        full.
        """
        self.collector.begin(self._explore)
        self.collector.finish()
        episodes = self.collector.drain_when_due()
        for values in episode_logs(episodes):
            self._log(values)
        self._steps += 1
        if self._steps == self.ppo.rollout:
            self._learn()
        return episodes

    def _explore(self, obs: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        return self.learner.act(obs, ctx, explore=True)

    def _learn(self) -> None:
        info: Info = {}
        if self.groups.size:
            data, info = self.rollout.take_groups(self.groups)
            self._watch_groups(info)
        else:
            data = self.rollout.transitions(
                self.learner.value, self.ppo.gae_lambda, self._scale,
                timeout_is_failure=self.config.learner.timeout_is_failure,
            )  # fmt: skip
            self.rollout.clear(self.collector.running)
        info |= self.learner.update(data, self.total_rounds)
        self._steps = 0
        self._log(info | {"train/updates": torch.tensor(float(self.learner.updates))})

    def _watch_groups(self, info: Info) -> None:
        """Say once that no group becomes complete."""
        found = float(info["train/groups_complete"]) > 0.0
        self._rounds_without_group = 0 if found else self._rounds_without_group + 1
        if self._rounds_without_group == 2:
            self._say(
                f"No group of {self.groups.size} episodes was complete in the last two rounds: nothing was "
                "learned. Raise num_envs or method.ppo.rollout, or lower method.groups.size."
            )

    def _log(self, values: Mapping[str, Any]) -> None:
        if self.logger is not None:
            self.logger.log(self.env_steps, values)

    def state_dict(self) -> dict[str, Any]:
        """State of everything but the environment, whose snapshot the caller stores."""
        return {
            "learner": self.learner.state_dict(),
            "collector": self.collector.state_dict(),
            "rollout": self.rollout.state_dict(),
            "scale": None if self._scale is None else self._scale.state_dict(),
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        self.collector.load_state_dict(state["collector"])
        self.rollout.load_state_dict(state["rollout"])
        if self._scale is not None:
            self._scale.load_state_dict(state["scale"])
        self._steps = int(state["steps"])
