"""The methods of `robo-rl fly`: each a set of settings, overridden as method.<key>=<value>."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import setting
from robo_rl.core.settings import one_of
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.replay_trainer import ReplayConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from robo_rl.rl.on_policy.ppo_trainer import PpoTrainerConfig


@dataclass
class FirstOrderMethod:
    """Gradients through the dynamics; its settings are those of the verb: horizon, lr, ..."""

    name: str = "first_order"


@dataclass
class ShacMethod:
    """Short-horizon actor-critic (Xu et al. 2022): first_order with a learned cost-to-go after a shorter
    horizon.
    """

    name: str = "shac"


@dataclass
class RewardMethod:
    """Settings shared by methods that learn from rewards."""

    lanes: int = setting(64, "number of parallel drones", at_least=1)
    reward_size: float = setting(0.05, "factor of all rewards", at_least=0.0)
    asymmetric: bool = setting(True, "the critic sees the true state, the rotors and the disturbance")
    reward: str = one_of(
        "l2f", "task", help="reward of Eschmann et al. 2024 (l2f), or the cost of first-order learning (task)"
    )
    positive: bool = setting(
        False, "reward alive exp(-cost / alive) instead of alive - cost, always positive"
    )


@dataclass
class Td3Method(ReplayConfig, RewardMethod):
    """TD3 as in Learning to Fly in Seconds, with its asymmetric critic, reward and curriculum.

    Updates are fewer and larger than there (one per 10 steps, batch 256, rates 1e-3, gamma 0.99), because an
    update here costs about ten times as much as in compiled C++. This is compensated by n-step returns,
    faster targets and a shorter horizon.
    """

    name: str = "td3"
    updates: int = setting(32, "updates of the critics per round", at_least=1)
    warmup_rounds: int = setting(4, "rounds of random actions before learning starts", at_least=0)
    lesson_rounds: int = setting(
        49, "rounds per lesson of the curriculum, 100,000 steps; 0: no curriculum", at_least=0
    )
    learner: LearnerConfig = field(
        default_factory=lambda: LearnerConfig(
            actor="deterministic",
            activation="tanh",
            actor_norm=False,
            gamma=0.98,
            n_step=5,
            tau=0.02,
            batch=512,
            actor_reduce="first",
            lr_actor=3e-4,
            lr_critic=1e-3,
            actor_delay=2,
            explore_std=0.2,
            explore_correlation=0.8,
            target_std=0.1,
        )
    )


@dataclass
class SacMethod(ReplayConfig, RewardMethod):
    """SAC with the same critics and curriculum, and a temperature tuned to an entropy of -2 nats per motor.

    Motors average white noise out, so lanes explore with correlated noise (Eberhard et al. 2023), and rewards
    are positive. Without either, the policy learns to leave the box.
    """

    name: str = "sac"
    positive: bool = setting(True, "reward alive exp(-cost / alive) instead of alive - cost, always positive")
    updates: int = setting(32, "updates of the critics per round", at_least=1)
    warmup_rounds: int = setting(4, "rounds of random actions before learning starts", at_least=0)
    lesson_rounds: int = setting(
        49, "rounds per lesson of the curriculum, 100,000 steps; 0: no curriculum", at_least=0
    )
    learner: LearnerConfig = field(
        default_factory=lambda: LearnerConfig(
            actor="gaussian",
            activation="tanh",
            actor_norm=False,
            gamma=0.98,
            n_step=5,
            tau=0.02,
            batch=512,
            lr_actor=1e-3,
            lr_critic=1e-3,
            actor_delay=2,
            explore_correlation=0.8,
            init_std=0.3,
            alpha=2e-3,
            auto_alpha=True,
            target_entropy=-2.0,
            entropy_in_target=True,
        )
    )


@dataclass
class PpoMethod(PpoTrainerConfig, RewardMethod):
    """PPO in thousands of parallel lanes."""

    name: str = "ppo"
    lanes: int = setting(1024, "number of parallel drones", at_least=1)
    ppo: PpoConfig = field(
        default_factory=lambda: PpoConfig(
            rollout=16,
            epochs=4,
            minibatches=8,
            target_kl=0.05,
            std=0.3,
            final_std=0.08,
            squash=True,
            warmup=2,
            value_bias=0.0,
        )
    )
    learner: LearnerConfig = field(
        default_factory=lambda: LearnerConfig(
            actor="deterministic",
            activation="tanh",
            actor_norm=False,
            gamma=0.98,
            lr_actor=2e-3,
            lr_critic=2e-3,
            grad_clip=1.0,
        )
    )


METHODS = {
    "first_order": FirstOrderMethod,
    "shac": ShacMethod,
    "td3": Td3Method,
    "sac": SacMethod,
    "ppo": PpoMethod,
}
