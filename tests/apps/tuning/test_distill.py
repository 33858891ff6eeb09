"""Composition of distillation: acting policy, labels, and refused teachers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.checkpoint import save_policy
from policies.executor import ChunkExecutor
from policies.imported.diffusion import ImportedDiffusionPolicy
from policies.registry import SavedPolicy
from policies.tuned.best_of import BestOfPolicy
from policies.tuned.fine_tuned import corrects_steps
from policies.tuned.one_step import JumpHead, OneStepPolicy
from policies.tuned.residual import ResidualPolicy
from policies.tuned.single_step import SingleStepPolicy
from policies.tuned.steered import SteeredPolicy
from robo_rl.apps.distill import distill_policy, main, train_note
from robo_rl.apps.tuning.distill_rounds import DistillationResult, Rounds, sampling_path
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.action_map import CandidateMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.rl.distillation.dagger import DaggerCollector
from robo_rl.runs.run_dir import RunDir
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env


def steered(origin: str = "gaussian", base: SavedPolicy | None = None) -> SteeredPolicy:
    torch.manual_seed(1)
    action_map = LatentMap(4, 1, 1.5, origin)  # type: ignore[arg-type]
    actor = make_actor(ActorConfig("gaussian", 4 + action_map.ctx_dim, 4, (8,)))
    torch.nn.init.normal_(actor.net[-1].weight)
    return SteeredPolicy(base or flow_policy(SPEC), actor, action_map)


def residual(steps: int = 1, base: SavedPolicy | None = None) -> ResidualPolicy:
    torch.manual_seed(2)
    actor = make_actor(ActorConfig("deterministic", 4 + steps, steps, (8,)))
    torch.nn.init.normal_(actor.net[-1].weight)
    return ResidualPolicy(base or flow_policy(SPEC), actor, ResidualMap(1, 0.3, steps))


def best_of() -> BestOfPolicy:
    """Four draws, of which the critic prefers the one with the largest first action."""
    torch.manual_seed(3)
    critic = CriticEnsemble(4 + 2, [1], heads=2, layer_norm=False)
    with torch.no_grad():
        for weight in critic.weights:
            weight.zero_()
        critic.weights[0][:, 4] = 1.0
        critic.biases[0].fill_(2.0)
        critic.weights[1].fill_(1.0)
    unused = make_actor(ActorConfig("deterministic", 1, 1, (1,)))
    return BestOfPolicy(flow_policy(SPEC), critic, CandidateMap(1, 2, 4), unused)


def imported() -> ImportedDiffusionPolicy:
    """Its chunks begin a step later and are scaled."""
    policy = ImportedDiffusionPolicy(flow_policy(SPEC), past=1)
    policy.gain.fill_(0.5)
    policy.offset.fill_(0.2)
    return policy.eval().requires_grad_(False)


def head() -> SingleStepPolicy:
    torch.manual_seed(0)
    return SingleStepPolicy(SPEC, flow_policy(SPEC).encoder, MlpDenoiserConfig(width=8, depth=1), 2, 4, 2)


def distilled(teacher: SavedPolicy, **changes: Any) -> DistillationResult:
    small: dict[str, Any] = {
        "teacher": "t",
        "out": "o",
        "steps": 300,
        "batch_size": 64,
        "lr": 3e-3,
        "rollout_steps": 300,
        "rounds": 1,
        "round_steps": 150,
        "net": MlpDenoiserConfig(width=64, depth=2),
        "num_envs": 3,
    }
    env = make_env(3)
    rounds = Rounds(DistillVerb(**small | changes), teacher, 1.0, env)
    while not rounds.done:
        rounds.update() if rounds.learns else rounds.collect()
    env.close()
    return rounds.result()


TEACHERS = {
    "base": flow_policy(SPEC),
    "steered": steered(),
    "steered from zero": steered("zero"),
    "residual per step": residual(),
    "residual per chunk": residual(2),
    "best of four draws": best_of(),
    "residual per chunk of an imported policy": residual(2, imported()),
    "imported": imported(),
}


@pytest.mark.parametrize("name", TEACHERS)
def test_head_reproduces_its_teacher(name: str) -> None:
    """In one call, on new states and noise; from zero noise if the teacher ignores it."""
    teacher = TEACHERS[name]
    result = distilled(teacher)
    assert result.noise_scale == (0.0 if name == "steered from zero" else 1.0)
    env, noise = make_env(3), EpisodeNoise((4, 1), result.noise_scale)
    seen = (
        DaggerCollector(env, teacher, ChunkExecutor, noise, corrects_steps(teacher), seed=99)
        .collect(150)
        .data
    )
    env.close()
    with torch.no_grad():
        found = result.head.sample_from(seen.features, seen.noise)
    error = ((found - seen.chunk).square().mean(2) * seen.weight).sum() / seen.weight.sum()
    spread = seen.chunk[:, :2].var()
    assert error < 0.2 * spread, (float(error), float(spread))


def test_recorded_time_excludes_the_comparison() -> None:
    """The time of the comparison with the teacher is not counted."""
    result = distilled(TEACHERS["base"])
    assert result.cpu_s > 0.0
    assert result.wall_s > 0.0
    note = train_note(DistillVerb(teacher="t", out="o"), result)
    assert (note["train_wall_s"], note["train_cpu_s"]) == (round(result.wall_s, 2), round(result.cpu_s, 2))


def test_the_same_seed_gives_the_same_head() -> None:
    """Promise 8: states, noise, weights and order of batches follow from the seed."""
    heads = [distilled(flow_policy(SPEC), steps=20, seed=seed).head.state_dict() for seed in (3, 3, 4)]
    assert all(torch.equal(heads[0][key], heads[1][key]) for key in heads[0])
    assert not all(torch.equal(heads[0][key], heads[2][key]) for key in heads[0])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_student_executes_its_share_and_the_teacher_labels_all(share: float) -> None:
    """DAgger (Ross et al. 2011): states of the student's mistakes are included; the teacher's chunk is the
    label.
    """
    teacher, student, driven = flow_policy(SPEC), head(), list[Tensor]()

    class Marked(SingleStepPolicy):
        """The student executes an action that no other policy would choose."""

        def sample_from(self, features: Tensor, noise: Tensor) -> Tensor:
            return torch.full_like(noise, 0.12345)

    student.__class__ = Marked
    env = make_env(3)
    step = env.step
    env.step = lambda action: (driven.append(action), step(action))[1]  # type: ignore[method-assign]
    found = DaggerCollector(env, teacher, ChunkExecutor, EpisodeNoise((4, 1)), False, seed=0).collect(
        600, student, share
    )
    env.close()
    mine = (SPEC.action.normalize(torch.cat(driven)) - 0.12345).abs() < 1e-5
    assert abs(mine.float().mean() - share) < 0.12
    with torch.no_grad():
        assert torch.equal(found.data.chunk, teacher.sample_from(found.data.features, found.data.noise))


def test_step_teacher_needs_decisions_of_its_own() -> None:
    """One sentence instead of an empty dataset."""
    env = make_env(3)
    made = DaggerCollector(env, residual(), ChunkExecutor, EpisodeNoise((4, 1)), True, seed=0)
    with pytest.raises(ConfigError, match="student_share"):
        made.collect(60, head(), 1.0)
    env.close()


def test_path_of_a_steered_teacher_starts_at_the_given_noise() -> None:
    """The head receives the noise before steering; the rest of the path is the base's from the steered
    noise.
    """
    teacher, features, noise = steered(), torch.randn(5, 4), torch.randn(5, 4, 1)
    walk = sampling_path(teacher)
    assert walk is not None
    with torch.no_grad():
        points, times = walk(features, noise)
        end = teacher.sample_from(features, noise)
    assert torch.equal(points[0], noise)
    assert torch.equal(points[-1].clamp(-1.0, 1.0), end)
    assert (times[0], times[-1]) == (1.0, 0.0)


def test_residuals_have_no_denoising_path() -> None:
    """Consistency distillation needs the points between noise and action."""
    assert sampling_path(residual()) is None
    assert sampling_path(steered(base=residual())) is None
    assert sampling_path(flow_policy(SPEC)) is not None


@pytest.mark.parametrize(
    ("teacher", "changes", "words"),
    [
        (head(), {}, "already decides in a single step"),
        (OneStepPolicy(flow_policy(SPEC), JumpHead(flow_policy(SPEC))), {}, "'one_step' already decides"),
        (residual(), {"consistency": 1.0}, "samples in several steps"),
        (best_of(), {"consistency": 1.0}, "kind 'best_of' does not give"),
        (flow_policy(SPEC), {"env": "metaworld/reach-v3"}, "the policy was trained in .* on"),
    ],
)
def test_invalid_settings_are_refused_first(
    teacher: SavedPolicy, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """Reported before minutes of rollouts, without leaving a folder that blocks the next run."""
    if "env" in changes:
        pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")
    save_policy(tmp_path / "teacher", teacher)
    settings: dict[str, Any] = {"teacher": str(tmp_path / "teacher"), "out": str(tmp_path / "out")} | changes
    with pytest.raises(RoboRLError, match=words):
        main(DistillVerb(**settings))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("teacher", "changes", "said"),
    [
        ("base", {"rounds": 2}, "in 600 environment steps: 300 of the teacher alone, then 150 .* 2 rounds."),
        ("base", {"rounds": 0}, "in 300 environment steps: 300 of the teacher alone.$"),
        ("residual per step", {"rounds": 1}, "in 450 environment steps"),
    ],
)
def test_the_planned_steps_are_the_collected_ones(teacher: str, changes: dict[str, int], said: str) -> None:
    """Printed at the start of `robo-rl distill`, whose bar counts up to them."""
    env = make_env(3)
    config = DistillVerb(
        teacher="t", out="o", rollout_steps=300, round_steps=150, steps=1, batch_size=8, num_envs=3
    )
    rounds = Rounds(replace(config, **changes), TEACHERS[teacher], 1.0, env)
    assert re.search(said, rounds.plan())
    while not rounds.done:
        rounds.update() if rounds.learns else rounds.collect()
    env.close()
    assert f"in {rounds.env_steps} environment steps" in rounds.plan()


def test_the_plan_says_why_there_are_more_steps_than_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher that corrects steps and executes 8 of a chunk: 4 times the steps."""
    monkeypatch.setattr("robo_rl.apps.tuning.distill_rounds.corrects_steps", lambda teacher: True)
    rounds = Rounds.__new__(Rounds)
    rounds.config = DistillVerb(teacher="t", out="o", rollout_steps=300, round_steps=150, rounds=1)
    rounds.teacher = cast(Any, SimpleNamespace(execute=8))
    assert rounds.plan() == (
        "States are collected in 1800 environment steps: 1200 of the teacher alone, then 600 with the head "
        "in 1 round. These are 4 times rollout_steps= and round_steps=: the teacher corrects single "
        "steps and gives one label per executed chunk."
    )


def test_the_bar_counts_the_collected_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows how many states of how many: the updates begin only after minutes of collecting."""
    monkeypatch.setattr("robo_rl.runs.progress.LOG_INTERVAL_S", 0.0)
    env, teacher = make_env(3), flow_policy(SPEC)
    small = {"rollout_steps": 100, "rounds": 0, "steps": 1, "batch_size": 8, "num_envs": 3}
    config = DistillVerb(teacher="t", out=str(tmp_path / "run"), **small)  # type: ignore[arg-type]
    with RunDir.create(config.out, config) as run:
        distill_policy(config, teacher, 1.0, env, run)
    env.close()
    said = capsys.readouterr()
    assert said.out.startswith("States are collected in 100 environment steps")
    assert "collecting states, 99/100 steps" in said.err
