"""Real-time chunking: new chunks continue the running one, following the distribution of actions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from policies.base.chain import deterministic_sample
from policies.base.diffusion import DiffusionConfig
from policies.base.flow import Flow, FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.realtime import PreviousChunk, RealtimePolicy, flow_base, guided_sample, weights
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig

CHUNK, STD, RHO = 8, 0.5, 0.9


def smooth(x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
    """The exact velocity for chunks of one action, Gaussian: std 0.5, correlated by 0.9 from step to step."""
    cov, time = covariance(), float(t[0])
    rest = 1.0 - time
    z = torch.linalg.solve(time**2 * torch.eye(CHUNK) + rest**2 * cov, x[..., 0].T).T  # C^-1 x
    return (time * z - rest * z @ cov)[..., None]  # E[noise | x] - E[action | x]


def covariance() -> Tensor:
    steps = torch.arange(CHUNK)
    return STD**2 * RHO ** (steps[:, None] - steps[None]).abs().float()


def old_chunks(n: int) -> Tensor:
    """(n, CHUNK, 1) of the same distribution."""
    rng = torch.Generator().manual_seed(1)
    return (torch.linalg.cholesky(covariance()) @ torch.randn(CHUNK, n, generator=rng)).T[..., None]


def kept_of(old: Tensor, frozen: int, known: int) -> PreviousChunk:
    padded = old.clone()
    padded[:, known:] = 0.0
    return PreviousChunk(padded, frozen, known)


def test_weights_by_hand() -> None:
    """Six actions, two frozen, four known: c = 2/3 and 1/3 for the guided ones, c (e^c - 1) / (e - 1)."""
    soft = [c * (math.exp(c) - 1) / (math.e - 1) for c in (2 / 3, 1 / 3)]
    torch.testing.assert_close(weights(6, 2, 4), torch.tensor([1.0, 1.0, *soft, 0.0, 0.0]))
    assert weights(4, 4, 4).tolist() == [1.0] * 4
    assert weights(4, 0, 0).tolist() == [0.0] * 4


def test_without_known_actions_the_path_is_unchanged() -> None:
    """Bit for bit, also if the old chunk has values after the known ones."""
    noise, flow = (
        torch.randn(5, CHUNK, 1, generator=torch.Generator().manual_seed(0)),
        Flow(FlowConfig(steps=10)),
    )
    guided = guided_sample(
        flow, smooth, torch.zeros(5, 1), noise, PreviousChunk(torch.ones(5, CHUNK, 1), 0, 0)
    )
    assert torch.equal(guided, deterministic_sample(flow, smooth, torch.zeros(5, 1), noise, 10))


@pytest.mark.parametrize("steps", [5, 10])
def test_new_actions_fit_the_frozen_ones(steps: int) -> None:
    """Four of eight are frozen. Given them, the fifth is 0.9 times the fourth within 0.218, and so it must
    be. Unguided, it is independent of the fourth, and the arm would jump by 0.7 on average.
    """
    n, flow = 2000, Flow(FlowConfig(steps=steps))
    old, noise = old_chunks(n), torch.randn(n, CHUNK, 1, generator=torch.Generator().manual_seed(0))
    new = guided_sample(flow, smooth, torch.zeros(n, 1), noise, kept_of(old, 4, 4))
    free = deterministic_sample(flow, smooth, torch.zeros(n, 1), noise, steps)
    last = old[:, 3, 0].clamp(-1.0, 1.0)

    def rms(x: Tensor) -> float:
        return float(x.square().mean().sqrt())

    slope = float((new[:, 4, 0] * last).mean() / last.square().mean())
    assert slope == pytest.approx(RHO, abs=0.1)
    assert rms(new[:, 4, 0] - last) < 1.25 * STD * math.sqrt(2 - 2 * RHO)
    assert rms(free[:, 4, 0] - last) > 2.5 * STD * math.sqrt(2 - 2 * RHO)
    assert rms((new - old)[:, :4, 0]) < 0.2 * rms((free - old)[:, :4, 0])
    assert float(new[:, 7, 0].std()) == pytest.approx(STD, rel=0.15)  # the rest is as free as it was


def test_guidance_decreases_with_time() -> None:
    """Two frozen, six known: the difference to the old chunk grows along it."""
    n, flow = 1000, Flow(FlowConfig(steps=10))
    old, noise = old_chunks(n), torch.randn(n, CHUNK, 1, generator=torch.Generator().manual_seed(0))
    new = guided_sample(flow, smooth, torch.zeros(n, 1), noise, kept_of(old, 2, 6))
    apart = (new - old)[..., 0].square().mean(0).sqrt()
    assert apart[0] < apart[3] < apart[5] < apart[7]


def small(process: FlowConfig | DiffusionConfig) -> GenerativePolicy:
    torch.manual_seed(0)
    spec = EnvSpec("t", {"state": ArraySpec((3,))}, ActionSpec((-1.0, -1.0), (1.0, 1.0)), 10, 10.0)
    config = GenerativeConfig(chunk=CHUNK, net=MlpDenoiserConfig(width=16, depth=1), process=process)
    policy = GenerativePolicy.build(spec, Normalizer.fit({"state": torch.rand(20, 3)}), config)
    return policy.eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("prediction", "nearer"), [("velocity", 0.5), ("preconditioned", 0.5), ("sample", 1.0)]
)
def test_frozen_policy_is_guided_with_any_prediction(prediction: str, nearer: float) -> None:
    """Under no_grad and with frozen weights, as on a robot. An untrained network that predicts the action
    almost ignores the noise, so it can hardly be guided.
    """
    policy = small(FlowConfig(steps=10, prediction=prediction))
    obs, noise = {"state": torch.rand(3, 1, 3)}, torch.randn(3, CHUNK, 2)
    realtime = RealtimePolicy(policy)
    old = torch.full((3, CHUNK, 2), 0.4)
    with torch.no_grad():
        free = realtime.sample(obs, noise, None)
        new = realtime.sample(obs, noise, PreviousChunk(old, 4, 8))
    assert torch.equal(free, policy.sample(obs, noise))
    assert not new.requires_grad
    assert (new.abs() <= 1.0).all()
    assert (new - old)[:, :4].abs().mean() < nearer * (free - old)[:, :4].abs().mean()


def test_unguidable_policy_is_refused() -> None:
    with pytest.raises(CheckpointError, match="needs a flow policy"):
        flow_base(small(DiffusionConfig(steps=5)))
    with pytest.raises(CheckpointError, match="kind 'single_step'"):
        flow_base(type("Head", (), {"kind": "single_step"})())
    with pytest.raises(ConfigError, match="0 <= frozen <= known <= 8"):
        PreviousChunk(torch.zeros(1, CHUNK, 1), 5, 4)
