"""Learners in many lanes: they solve a simple task, recompute rewards at lessons, resume exactly, and respect
views.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.tensor_env import TensorStep
from robo_rl.core.views import Views
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.replay_trainer import ReplayConfig, ReplayTrainer
from robo_rl.rl.on_policy.ppo import PpoConfig, exploration_std
from robo_rl.rl.on_policy.ppo_trainer import PpoTrainer, PpoTrainerConfig

LANES, START = 32, torch.tensor([0.2])


class Push:
    """x' = x + 0.2 u; a step costs x^2, and 4 steps are an episode. The actor sees x, the critic x and a
    constant.
    """

    num, num_parts, views = LANES, 1, Views(slice(0, 1), slice(0, 2))

    def __init__(self) -> None:
        self.rng, self.lesson = torch.Generator().manual_seed(1), 0
        self.restart()

    def restart(self) -> None:
        self.x, self.age = self._draw(), torch.arange(LANES) % 4
        self.obs = self._see()

    def _draw(self) -> Tensor:
        return 2.0 * torch.rand(LANES, generator=self.rng) - 1.0

    def _see(self) -> Tensor:
        return torch.stack([self.x, torch.full((LANES,), 0.5)], dim=1)

    def step(self, action: Tensor) -> TensorStep:
        self.x, self.age = self.x + 0.2 * action[:, 0], self.age + 1
        parts, final, over = self.x.square().unsqueeze(1), self._see(), self.age >= 4
        never = torch.zeros(LANES, dtype=torch.bool)
        self.x, self.age = torch.where(over, self._draw(), self.x), torch.where(over, 0, self.age)
        self.obs = self._see()
        return TensorStep(final, self.reward_of(parts, never), parts, never, over)

    def advance_curriculum(self) -> None:
        self.lesson += 1

    def reward_of(self, parts: Tensor, terminated: Tensor) -> Tensor:
        return -parts[..., 0] * 2.0**self.lesson

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x, "age": self.age, "rng": self.rng.get_state(), "lesson": self.lesson}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.x, self.age, self.lesson = state["x"], state["age"], state["lesson"]
        self.rng.set_state(state["rng"])
        self.obs = self._see()


def made(kind: str, rounds: int = 20, lesson: int = 0) -> ReplayTrainer | PpoTrainer:
    rng = torch.Generator().manual_seed(0)
    common: dict[str, Any] = {
        "hidden": [16],
        "layer_norm": False,
        "lr_actor": 3e-3,
        "lr_critic": 1e-2,
        "gamma": 0.9,
    }
    if kind == "ppo":
        ppo = PpoConfig(rollout=16, epochs=4, minibatches=4, std=0.4, final_std=0.1, squash=True, warmup=0)
        return PpoTrainer(
            Push(), PpoTrainerConfig(rounds, ppo, LearnerConfig(actor="deterministic", **common)), START, rng
        )
    actor = {"td3": "deterministic", "sac": "gaussian"}[kind]
    learner = LearnerConfig(actor=actor, batch=64, tau=0.05, explore_std=0.3, alpha=0.01, **common)
    config = ReplayConfig(
        rounds=rounds,
        stride=8,
        updates=12,
        warmup_rounds=1,
        replay_capacity=8000,
        lesson_rounds=lesson,
        learner=learner,
    )
    return ReplayTrainer(Push(), config, START, rng)


def weights(learner: ReplayTrainer | PpoTrainer) -> Tensor:
    return torch.cat([p.detach().flatten() for p in learner.actor.parameters()])


def test_ppo_values_nothing_after_a_time_out_that_is_a_failure() -> None:
    """Returns of one round by hand: V is bootstrapped where the rollout ends, and at a time-out only if it is
    no failure.
    """
    found = []
    for failure in (False, True):
        learner: Any = made("ppo")
        learner.config.learner.timeout_is_failure = failure
        learner.config.ppo.gae_lambda = 1.0
        learner.learner.value = lambda obs, ctx: torch.full(obs.shape[:-1], 5.0)
        data, _ = learner._roll_out()
        found.append(data.returns.view(LANES, -1))
    apart = found[0] - found[1]
    # lanes of age 0: episodes of 4 steps, of which the last 4 steps end the rollout by a time-out too
    assert apart[0].tolist() == pytest.approx([5.0 * 0.9**left for left in (4, 3, 2, 1)] * 4)


@pytest.mark.parametrize("kind", ["td3", "sac", "ppo"])
def test_trainers_solve_the_simple_task(kind: str) -> None:
    """From the action 0.2 everywhere to one that points strongly at zero, on both sides."""
    learner = made(kind)
    x = torch.tensor([[0.8], [-0.8]])
    assert learner.actor.mode(x).flatten().tolist() == pytest.approx([0.2, 0.2], abs=1e-6)
    while not learner.done:
        learner.update()
    right, left = learner.actor.mode(x).flatten().tolist()
    assert right < -0.5
    assert left > 0.5


@pytest.mark.parametrize("kind", ["td3", "ppo"])
def test_a_resumed_run_is_the_same_run(kind: str, tmp_path: Path) -> None:
    """Six rounds equal three, a save, a load into another, three more, including lesson and standard
    deviation.
    """
    whole = made(kind, 6, lesson=2)
    for _ in range(6):
        whole.update()
    first, second = made(kind, 6, lesson=2), made(kind, 6, lesson=2)
    for _ in range(3):
        first.update()
    save_state(tmp_path / "state", first.state_dict())
    second.update()  # something to be overwritten
    second.load_state_dict(load_state(tmp_path / "state"))
    for _ in range(3):
        second.update()
    assert torch.equal(weights(second), weights(whole))
    assert second.env_steps == whole.env_steps


def test_lesson_recomputes_the_rewards_of_the_replay() -> None:
    """Rewards in the replay double after the first lesson, once."""
    learner = made("td3", lesson=2)
    assert isinstance(learner, ReplayTrainer)
    learner.update()
    data = learner.replay.data
    before = data["reward"].clone()
    learner._advance_curriculum()
    torch.testing.assert_close(data["reward"], 2.0 * before)
    assert before.abs().sum() > 0.0


def test_time_out_is_bootstrapped_by_setting() -> None:
    """Equal draws: bootstrapped by default, without further value with timeout_is_failure."""
    learner = made("td3")
    assert isinstance(learner, ReplayTrainer)
    for _ in range(8):
        learner.update()
    state = learner.generator.get_state()
    bootstrapped = learner._sample().discount
    learner.generator.set_state(state)
    learner.config.learner.timeout_is_failure = True
    ended = learner._sample().discount
    differ = bootstrapped != ended
    assert differ.any()
    assert (bootstrapped[differ] > 0.0).all()
    assert (ended[differ] == 0.0).all()


@pytest.mark.parametrize(
    "settings", [{"network": "bronet"}, {"reward_scaling": "deviation"}, {"lr_end": 0.5}], ids=str
)
def test_flight_has_plain_networks_and_fixed_scales(settings: dict[str, Any]) -> None:
    config = ReplayConfig(learner=LearnerConfig(**settings))
    with pytest.raises(ConfigError, match="plain MLP"):
        ReplayTrainer(Push(), config, START, torch.Generator())


def test_a_curriculum_allows_no_floors() -> None:
    """Returns in the replay are not recomputed, and would keep targets at old reward weights."""
    config = ReplayConfig(lesson_rounds=2, learner=LearnerConfig(return_floor=True))
    with pytest.raises(ConfigError, match="lesson_rounds=0"):
        ReplayTrainer(Push(), config, START, torch.Generator())


def test_privileged_columns_reach_only_the_critic() -> None:
    """The actor's output does not depend on the second column, the critics' does."""
    learner = made("td3")
    assert isinstance(learner, ReplayTrainer)
    for _ in range(4):
        learner.update()
    low, high = torch.tensor([[0.3, 0.0]]), torch.tensor([[0.3, 1.0]])
    none, critic = torch.zeros(1, 0), learner.learner.critic
    assert torch.equal(learner.learner.act(low, none, False), learner.learner.act(high, none, False))
    assert not torch.equal(critic(low, torch.zeros(1, 1)), critic(high, torch.zeros(1, 1)))


def test_exploration_shrinks_evenly_in_its_logarithm() -> None:
    """Half way from 0.4 to 0.1 is their geometric mean; without a final value it is constant."""
    config = PpoConfig(std=0.4, final_std=0.1)
    assert [exploration_std(config, share) for share in (0.0, 0.5, 1.0)] == pytest.approx([0.4, 0.2, 0.1])
    assert exploration_std(PpoConfig(std=0.4), 0.7) == 0.4


def test_a_minibatch_of_one_teaches_nothing() -> None:
    """A single standardised advantage is 0: 32 lanes of one step give at most 16 minibatches, not 20."""
    rng = torch.Generator().manual_seed(0)
    with pytest.raises(ConfigError, match=r"minibatches=20 .* method\.ppo\.rollout=2 or more"):
        PpoTrainer(Push(), PpoTrainerConfig(1, PpoConfig(rollout=1, minibatches=20)), START, rng)
    PpoTrainer(Push(), PpoTrainerConfig(1, PpoConfig(rollout=1, minibatches=16)), START, rng).update()
