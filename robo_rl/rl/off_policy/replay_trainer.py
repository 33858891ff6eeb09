"""Off-policy learning from scratch in many parallel lanes: TD3 or SAC, with a curriculum.

    warm-up: random actions ─► rounds of `stride` steps of all lanes and `updates` updates

Each lesson of the curriculum changes the reward weights. The rewards in the replay are then recomputed from
the stored reward terms (Eschmann et al. 2024, section III). The interface is that of `FirstOrder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.settings import check_settings, setting
from robo_rl.core.tensor_env import TensorEnv
from robo_rl.data.replay import Replay
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import Info


@dataclass
class ReplayConfig:
    """Length of training and the ratio of updates to data."""

    rounds: int = setting(300, "rounds of flying and learning", at_least=1)
    stride: int = setting(32, "steps of every parallel drone in a round", at_least=1)
    updates: int = setting(100, "critic updates per round", at_least=1)
    warmup_rounds: int = setting(8, "first rounds of random actions, without learning", at_least=0)
    warmup_std: float = setting(
        0.5, "standard deviation of these actions around `start`, in units of u", at_least=0.0
    )
    replay_capacity: int = setting(300_000, "steps that the replay holds", at_least=1)
    lesson_rounds: int = setting(0, "rounds per lesson of the curriculum; 0: no curriculum", at_least=0)
    learner: LearnerConfig = field(default_factory=LearnerConfig)


class ReplayTrainer:
    """Replay buffer and learner of one run. start: (a,), mean of the initial actions, inside (-1, 1)."""

    def __init__(
        self, env: TensorEnv, config: ReplayConfig, start: Tensor, generator: torch.Generator
    ) -> None:
        check_settings(config)
        if config.learner.return_floor and config.lesson_rounds:
            raise ConfigError(
                "A curriculum changes rewards, but the Monte-Carlo returns in the replay are not recomputed: "
                "set learner.return_floor=false, or lesson_rounds=0."
            )
        learner = config.learner
        if learner.network != "mlp" or learner.reward_scaling != "none" or learner.lr_end != 1.0:
            raise ConfigError(
                "A flight policy is a plain MLP, and its rewards change with the curriculum: set "
                "learner.network=mlp, reward_scaling=none and lr_end=1."
            )
        self.env, self.config, self.generator, self.rounds, self.start = env, config, generator, 0, start
        width, dim = env.obs.shape[1], len(start)
        self.learner = OffPolicyLearner(width, DirectMap(dim), config.learner, generator, env.views)
        for actor in (self.learner.actor, self.learner.target_actor):
            actor.start_at(start)
        widths = {"obs": width, "next_obs": width, "critic_action": dim, "action": 0, "ctx": 0, "next_ctx": 0}
        self.replay = Replay(config.replay_capacity, env.num, widths, extra={"parts": env.num_parts})
        self._debt = 0.0  # updates that are due
        self._none, self._all = torch.zeros(env.num, 0), Lanes.all(env.num)
        env.restart()

    @property
    def actor(self) -> Any:
        return self.learner.actor

    @property
    def done(self) -> bool:
        return self.rounds >= self.config.rounds

    @property
    def updates(self) -> int:
        """Rounds so far, the unit of progress."""
        return self.rounds

    @property
    def env_steps(self) -> int:
        return self.rounds * self.config.stride * self.env.num

    def update(self) -> Info:
        """Logs of one round, as tensors: cost per step, ended episodes, and the learner's logs."""
        cfg = self.config
        info: Info = {}
        cost, ended = torch.zeros(()), torch.zeros(())
        learning = self.rounds >= cfg.warmup_rounds
        for _ in range(cfg.stride):
            parts, over = self._step(explore=learning)
            cost, ended = cost + parts, ended + over
            self._debt += cfg.updates / cfg.stride if learning else 0.0
            while self._debt >= 1.0:
                info = info | self.learner.update(self._sample())
                self._debt -= 1.0
        self.rounds += 1
        if cfg.lesson_rounds and self.rounds % cfg.lesson_rounds == 0:
            self._advance_curriculum()
        return {"train/cost": cost / cfg.stride, "train/ended": ended, **info}

    def _step(self, explore: bool) -> tuple[Tensor, Tensor]:
        """Step all lanes and store the transitions. Returns (mean cost, number of ended episodes)."""
        env, obs = self.env, self.env.obs
        if explore:
            u = self.learner.act(obs, self._none, explore=True)
        else:
            noise = torch.randn(env.num, len(self.start), generator=self.generator)
            u = (self.start + self.config.warmup_std * noise).clamp(-1.0, 1.0)
        step = env.step(u)
        never, nothing = torch.zeros(env.num, dtype=torch.bool), torch.zeros(env.num)
        values = {
            "obs": obs,
            "next_obs": step.final_obs,
            "critic_action": u,
            "action": self._none,
            "ctx": self._none,
            "next_ctx": self._none,
            "reward": step.reward,
            "steps": nothing + 1.0,
            "demo": nothing,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "cut": never,
            "parts": step.parts,
        }
        self.replay.add(self._all, values, self.config.learner.gamma)
        return step.parts.sum(1).mean(), (step.terminated | step.truncated).sum()

    def _sample(self) -> Any:
        cfg = self.config.learner
        return self.replay.sample(
            cfg.batch,
            self.generator,
            gamma=cfg.gamma,
            n_step=cfg.n_step,
            timeout_is_failure=cfg.timeout_is_failure,
        )

    def _advance_curriculum(self) -> None:
        self.env.advance_curriculum()
        data = self.replay.data
        data["reward"][:] = self.env.reward_of(data["parts"], data["terminated"])

    def state_dict(self) -> dict[str, Any]:
        """State with the replay buffer, which takes hundreds of megabytes when full."""
        return {
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
            "env": self.env.state_dict(),
            "generator": self.generator.get_state(),
            "counters": [self.rounds, self._debt],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        self.env.load_state_dict(state["env"])
        self.generator.set_state(state["generator"])
        rounds, self._debt = state["counters"]
        self.rounds = int(rounds)
