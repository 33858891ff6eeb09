"""Distillation: losses, and labels of the teacher."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.tuned.fine_tuned import corrects_steps
from policies.tuned.residual import ResidualPolicy
from policies.tuned.single_step import SingleStepPolicy
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.rl.distillation.dagger import DaggerCollector
from robo_rl.rl.distillation.distill import (
    DistillConfig,
    DistillData,
    consistency_loss,
    distill,
    same_noise_loss,
)
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env


def head() -> SingleStepPolicy:
    torch.manual_seed(0)
    return SingleStepPolicy(SPEC, flow_policy(SPEC).encoder, MlpDenoiserConfig(width=64, depth=2), 2, 4, 2)


def residual() -> ResidualPolicy:
    torch.manual_seed(1)
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    torch.nn.init.normal_(actor.net[-1].weight)
    return ResidualPolicy(flow_policy(SPEC), actor, ResidualMap(1, 0.3))


@pytest.mark.parametrize("consistency", [0.0, 0.5])
def test_a_head_learns_its_teachers_endpoints(consistency: float) -> None:
    """Same noise, same chunk: after training on 64 states the head is close to its labels."""
    teacher = flow_policy(SPEC)
    features, noise = torch.randn(64, 4), torch.randn(64, 4, 1)
    with torch.no_grad():
        chunk = teacher.sample_from(features, noise)
    data = DistillData(features, noise, chunk, torch.ones(64, 4))
    made = head()
    with torch.no_grad():
        before = same_noise_loss(made, features, noise, chunk, data.weight)
    config = DistillConfig(steps=400, batch_size=64, lr=3e-3, consistency=consistency)
    trained = distill(made, data, config, path=teacher.path)
    with torch.no_grad():
        after = same_noise_loss(trained, features, noise, chunk, data.weight)  # type: ignore[arg-type]
    assert after < before / 20


def test_a_consistent_head_has_no_consistency_loss() -> None:
    """A head that jumps to 0 from everywhere on a path that ends in 0."""

    class Perfect:
        def jump(self, features: Any, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x)

    points = [torch.ones(3, 2, 1), 0.5 * torch.ones(3, 2, 1), torch.zeros(3, 2, 1)]
    loss = consistency_loss(
        Perfect(), Perfect(), torch.zeros(3, 1), points, [1.0, 0.5, 0.0], torch.tensor([0, 1, 1])
    )
    assert loss == 0.0


def test_cut_chunks_weigh_only_executed_actions() -> None:
    """Weight 0 on the second half: its error must have no effect."""

    class Zero:
        def jump(self, features: Any, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x)

    chunk = torch.tensor([[[1.0], [100.0]]])
    weight = torch.tensor([[1.0, 0.0]])
    assert same_noise_loss(Zero(), torch.zeros(1, 1), chunk, chunk, weight) == 1.0


def test_consistency_needs_a_sampling_path() -> None:
    """A step-wise residual has no sampling path, and the message says so."""
    data = DistillData(torch.zeros(1, 4), torch.zeros(1, 4, 1), torch.zeros(1, 4, 1), torch.ones(1, 4))
    with pytest.raises(ConfigError, match="several steps"):
        distill(head(), data, DistillConfig(consistency=1.0))


def dagger_collector(teacher: Any) -> tuple[DaggerCollector, Any]:
    env = make_env(3)
    noise = EpisodeNoise((4, 1))
    return DaggerCollector(env, teacher, ChunkExecutor, noise, corrects_steps(teacher), seed=0), env


def test_chunk_teacher_labels_every_state() -> None:
    """One label per environment step: the teacher's chunk for that noise."""
    teacher = flow_policy(SPEC)
    made, env = dagger_collector(teacher)
    found = made.collect(60)
    env.close()
    assert not corrects_steps(teacher)
    assert len(found.data) == found.env_steps == 60
    with torch.no_grad():
        assert torch.equal(found.data.chunk, teacher.sample_from(found.data.features, found.data.noise))


def test_label_of_a_step_teacher_is_the_executed_chunk() -> None:
    """Chunks including corrections, weighted to their executed length."""
    teacher = residual()
    made, env = dagger_collector(teacher)
    found = made.collect(60)
    env.close()
    assert corrects_steps(teacher)
    assert found.data.weight[:, 2:].sum() == 0  # two of four actions are executed
    with torch.no_grad():
        base = teacher.base.sample_from(found.data.features, found.data.noise)
    first = found.data.chunk[:, 0] - base[:, 0]
    assert first.abs().max() > 0.0
    assert first.abs().max() <= 0.3 + 1e-6


def test_student_executes_its_share() -> None:
    """DAgger: if the student makes all decisions, a step-wise teacher gives no labels; at half, some."""
    made, env = dagger_collector(residual())
    alone = len(made.collect(120).data)
    half = len(made.collect(120, head(), 0.5).data)
    env.close()
    assert 0.2 * alone < half < 0.8 * alone
