"""Distillation of a vision-language-action policy: one call of the action expert, from the same prefix."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import torch

from policies.tuned.steered import SteeredPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.distill_rounds import Rounds, check_head
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.action_map import LatentMap
from robo_rl.core.errors import ConfigError
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.nets.denoiser import MlpDenoiserConfig
from tests.policies.small_vla import TA, TP, drawn, seen, sides_env, small_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

OBS = ("right", "go to the left side", "right")


def verb(**changes: Any) -> DistillVerb:
    few = {"steps": 40, "batch_size": 32, "rollout_steps": 100, "round_steps": 100, "rounds": 1, "lr": 3e-3}
    return DistillVerb(teacher="x", out="y", num_envs=3, **few | changes)


def trained(teacher: Any, config: DistillVerb, stop: bool = False) -> Any:
    """The result of all rounds; stop: continued by other objects after every tenth update."""
    with closing(sides_env()) as env:
        rounds, old = Rounds(config, teacher, 1.0, env), -1
        while not rounds.done:
            if rounds.learns:
                rounds.update()
            else:
                rounds.collect()
            if stop and rounds.updates % 10 == 0 and rounds.updates != old:
                state, old = rounds.state_dict(), rounds.updates
                rounds = Rounds(config, teacher, 1.0, env)
                rounds.load_state_dict(state)
        return rounds.result()


def error(policy: Any, teacher: Any) -> float:
    obs, noise = seen(*OBS, seed=9), drawn(3, seed=8)
    return float((policy.sample(obs, noise) - teacher.sample(obs, noise)).square().mean())


@torch.no_grad()
@pytest.mark.parametrize("experts", [[], [[1], [0]]], ids=["one expert", "two experts"])
def test_a_new_head_is_one_euler_step_of_its_teacher(experts: list[list[int]]) -> None:
    teacher, obs = small_vla(experts=experts), seen(*OBS)
    with closing(sides_env()) as env:
        rounds = Rounds(verb(), teacher, 1.0, env)
    rows: Any = rounds.labelling.features(obs)
    once = teacher.sample_from(teacher.encode(obs), drawn(3), steps=1)
    torch.testing.assert_close(rounds.head.sample_from(rows, drawn(3)), once, atol=1e-5, rtol=0)
    zero = torch.zeros(3)
    torch.testing.assert_close(rounds.head.jump(rows, drawn(3), zero), drawn(3))  # identity at t = 0


@pytest.mark.parametrize(
    ("consistency", "experts"),
    [
        (0.0, []),
        pytest.param(0.5, [], marks=pytest.mark.slow),
        pytest.param(0.0, [[1], [0]], marks=pytest.mark.long),
    ],
)
def test_the_head_approaches_the_teacher_and_keeps_its_prefix(
    consistency: float, experts: list[list[int]]
) -> None:
    """The same noise leads to the same chunk, in states that neither has seen."""
    teacher = small_vla(experts=experts)
    made = trained(teacher, verb(consistency=consistency, steps=100))
    head = made.head
    assert isinstance(head, VlaPolicy)
    assert (head.process.steps, head.shape.process.steps, head.execute) == (1, 1, TA)
    assert head.backbone is teacher.backbone
    assert error(head, teacher) < 0.5 * error(started(teacher), teacher)
    restored = VlaPolicy.from_config(head.config())
    restored.load_state_dict(head.state_dict())
    obs = seen(*OBS)
    assert torch.equal(restored.eval().sample(obs, drawn(3)), head.sample(obs, drawn(3)))


def started(teacher: VlaPolicy) -> Any:
    """The teacher in a single step."""

    class Once:
        def sample(self, obs: Any, noise: torch.Tensor) -> torch.Tensor:
            return teacher.sample(obs, noise, steps=1)

    return Once()


def test_a_stopped_distillation_equals_an_unstopped_one() -> None:
    """Promise 7, at every point of both rounds."""
    heads = [
        trained(small_vla(), verb(steps=20, batch_size=8), stop).head.state_dict() for stop in (False, True)
    ]
    assert all(torch.equal(value, heads[1][key]) for key, value in heads[0].items())


@pytest.mark.slow
def test_a_steered_policy_is_distilled_with_its_steering() -> None:
    """Labels are the steered chunks, of the noise that the head receives."""
    base = small_vla()
    features, action_map = base.features(seen("right")).shape[1], LatentMap(TP, 2, 1.5)
    actor = make_actor(ActorConfig("deterministic", features, action_map.dim, (8,), False))
    torch.nn.init.normal_(list(actor.parameters())[-1], std=2.0)
    steered = SteeredPolicy(base, actor, action_map).eval().requires_grad_(False)
    made = trained(steered, verb(steps=150))
    assert made.noise_scale == 0.0  # its own noise input is unused
    obs, zero = seen(*OBS, seed=9), torch.zeros(3, TP, 2)
    ours, theirs, base_chunk = (each.sample(obs, zero) for each in (made.head, steered, base))
    assert (ours - theirs).abs().mean() < (ours - base_chunk).abs().mean()


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="single step"):
        check_head(verb(), small_vla(steps=1))
    with pytest.raises(ConfigError, match=r"policy\.memory.* Export the policy itself"):
        check_head(verb(), small_vla(memory=2))
    with pytest.raises(ConfigError, match="action expert"):
        check_head(verb(net=MlpDenoiserConfig(width=8)), small_vla())
    with pytest.raises(ConfigError, match="identity"):
        check_head(verb(consistency=0.1), small_vla(prediction="sample"))
