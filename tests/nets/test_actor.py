"""Actors: initial output, range of the output, and configuration."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robo_rl.core.errors import ConfigError
from robo_rl.nets.actor import ActorConfig, GaussianActor, make_actor


@pytest.mark.parametrize("kind", ["gaussian", "deterministic"])
@pytest.mark.parametrize("squash", [True, False])
def test_every_actor_starts_at_zero(kind: str, squash: bool) -> None:
    """u = 0 is the base: an untrained actor must not be worse than none."""
    actor = make_actor(ActorConfig(kind, 5, 3, (16,), squash=squash))
    assert actor.act(torch.randn(8, 3), torch.randn(8, 2)).eq(0.0).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_output_stays_in_the_unit_box(seed: int) -> None:
    """|u| <= 1 for any weights and draws: scale and magnitude depend on it."""
    torch.manual_seed(seed)
    actor = GaussianActor(ActorConfig("gaussian", 4, 2, (8,)))
    for parameter in actor.parameters():
        torch.nn.init.normal_(parameter, std=5.0)
    u, log_prob = actor.sample(100.0 * torch.randn(32, 4), 10.0 * torch.randn(32, 2))
    assert u.abs().max() <= 1.0
    assert torch.isfinite(log_prob).all()


def test_context_is_seen_behind_the_features() -> None:
    """act(features, ctx) is mode of their concatenation: collectors and deployed policies must agree on the
    order.
    """
    actor = make_actor(ActorConfig("deterministic", 5, 2, (8,)))
    torch.nn.init.normal_(actor.net[-1].weight)
    features, ctx = torch.randn(6, 3), torch.randn(6, 2)
    assert torch.equal(actor.act(features, ctx), actor.mode(torch.cat([features, ctx], dim=1)))
    assert not torch.equal(actor.act(features, ctx), actor.act(features, -ctx))


@pytest.mark.parametrize("clip_std", [False, True])
def test_restart_resets_the_weights(clip_std: bool) -> None:
    """Restart gives u = 0 and the initial standard deviation."""
    actor = GaussianActor(ActorConfig("gaussian", 3, 2, (8,), init_std=0.5, clip_std=clip_std))
    torch.nn.init.normal_(actor.net[-1].weight)
    actor.restart()
    mean, log_std = actor.distribution(torch.randn(4, 3))
    assert mean.eq(0.0).all()
    torch.testing.assert_close(log_std.exp(), torch.full((4, 2), 0.5))


def test_a_clipped_deviation_by_hand() -> None:
    """log s is the output plus log(init_std), but never above 2 or below `log_std_min`."""
    config = ActorConfig("gaussian", 3, 3, (), init_std=math.e, clip_std=True, log_std_min=-4.0)
    actor = GaussianActor(config)
    with torch.no_grad():
        actor.net[-1].get_parameter("bias")[3:] = torch.tensor([-6.0, -0.5, 1.5])
    found = actor.distribution(torch.zeros(1, 3))[1]
    torch.testing.assert_close(found, torch.tensor([[-4.0, 0.5, 2.0]]))


def test_a_configuration_comes_back_from_json() -> None:
    """Checkpoints hold lists where the config has tuples."""
    config = ActorConfig("gaussian", 3, 2, (8, 4), init_std=0.7, squash=False)
    again = make_actor(ActorConfig.from_json(config.to_json()))
    assert again.config == config


def test_an_unknown_kind_is_refused() -> None:
    """One sentence that lists the kinds."""
    with pytest.raises(ConfigError, match="gaussian"):
        make_actor(ActorConfig("normal", 3, 2))
