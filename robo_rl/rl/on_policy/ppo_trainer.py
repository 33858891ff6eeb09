"""PPO in thousands of parallel lanes: roll out, estimate advantages, a few passes of updates, repeat.

A rollout is a rectangle (lanes x steps) of tensors. The formulas are in `robo_rl/rl/on_policy/ppo.py`, the
networks in `PpoLearner`. The interface is that of `FirstOrder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.action_map import DirectMap
from robo_rl.core.settings import check_settings, setting
from robo_rl.core.tensor_env import TensorEnv
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.on_policy.ppo import PpoConfig, RewardScale, check_rollout, gae
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import RolloutTransitions


@dataclass
class PpoTrainerConfig:
    """Number of rounds, PPO and learner settings. ppo.rollout is the length of a rollout per lane."""

    rounds: int = setting(100, "rounds of flying and learning", at_least=1)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)


class PpoTrainer:
    """Learner and reward scale of one run. start: (a,), mean of the initial actions."""

    def __init__(
        self, env: TensorEnv, config: PpoTrainerConfig, start: Tensor, generator: torch.Generator
    ) -> None:
        check_settings(config)
        check_rollout(config.ppo, env.num)
        self.env, self.config, self.rounds = env, config, 0
        self.learner = PpoLearner(
            env.obs.shape[1], DirectMap(len(start)), config.learner, config.ppo, generator, env.views
        )
        self.learner.actor.start_at(start)
        self._scale = RewardScale(env.num, config.ppo.clip_reward) if config.ppo.normalize_reward else None
        self._none = torch.zeros(env.num, 0)
        env.restart()

    @property
    def actor(self) -> Any:
        return self.learner.actor

    @property
    def done(self) -> bool:
        return self.rounds >= self.config.rounds

    @property
    def updates(self) -> int:
        return self.rounds

    @property
    def env_steps(self) -> int:
        return self.rounds * self.config.ppo.rollout * self.env.num

    def update(self) -> Info:
        """Logs of one round, as tensors: cost per step, ended episodes, and the learner's logs."""
        data, info = self._roll_out()
        info |= self.learner.update(data, self.config.rounds)
        self.rounds += 1
        return info

    @torch.no_grad()
    def _roll_out(self) -> tuple[RolloutTransitions, Info]:
        env, columns = self.env, []
        for _ in range(self.config.ppo.rollout):
            obs = env.obs
            u = self.learner.act(obs, self._none, explore=True)
            step = env.step(u.clamp(-1.0, 1.0))
            columns.append((obs, u, step.final_obs, step.reward, step.terminated, step.truncated, step.parts))
        obs, u, after, reward, terminated, truncated, parts = (
            torch.stack(column, dim=1) for column in zip(*columns, strict=True)
        )
        none = torch.zeros(*reward.shape, 0)
        ended, discount = terminated | truncated, torch.full_like(reward, self.config.learner.gamma)
        cost = parts.sum(-1).mean()
        if self._scale is not None:
            reward = self._scale(reward, discount, ended, torch.ones_like(ended))
        now, then = self.learner.value(obs, none), self.learner.value(after, none)
        last = ended.clone()
        last[:, -1] = True  # V(s') replaces the return after the rollout
        failed = ended if self.config.learner.timeout_is_failure else terminated
        advantage = gae(reward, discount, now, then, failed, last, self.config.ppo.gae_lambda)
        flat = RolloutTransitions(
            obs.flatten(0, 1),
            none.flatten(0, 1),
            u.flatten(0, 1),
            advantage.flatten(),
            (advantage + now).flatten(),
        )
        return flat, {"train/cost": cost, "train/ended": ended.sum()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "learner": self.learner.state_dict(),
            "env": self.env.state_dict(),
            "scale": None if self._scale is None else self._scale.state_dict(),
            "rounds": self.rounds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        self.env.load_state_dict(state["env"])
        if self._scale is not None:
            self._scale.load_state_dict(state["scale"])
        self.rounds = int(state["rounds"])
