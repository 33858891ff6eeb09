"""Generative policies: the ChunkPolicy contract, purity, and log-probabilities that can be recomputed."""

from __future__ import annotations

import pytest
import torch

from policies.base.chain import DenoisingChain, Explore, gaussian_log_prob
from policies.base.generative import GenerativeConfig, GenerativePolicy
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.data.normalizer import Normalizer
from tests.policies.worlds import CAMERA_ENV, ENV, NETS, PROCESSES, observations, policy_of


def _chain(process: str, net: str, explore: Explore) -> tuple[DenoisingChain, float]:
    """A chain and the largest difference between its stored and its recomputed log-probabilities."""
    policy = policy_of(process, net)
    obs, rng = observations(ENV, 5, 2), torch.Generator().manual_seed(1)
    noise, draws = torch.randn(5, 8, 2, generator=rng), torch.randn(5, 4, 8, 2, generator=rng)
    with torch.no_grad():
        chain = policy.sample_chain(obs, noise, draws, explore)
    again = policy.log_prob(obs, chain).detach()
    assert chain.log_prob.shape == again.shape == (5, len(chain.steps), 8, 2)
    return chain, float((again.sum((2, 3)) - chain.log_prob.sum((2, 3))).abs().max()) if chain.steps else 0.0


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("process", PROCESSES)
def test_recomputed_log_probs_equal_stored_ones(process: str, net: str) -> None:
    """Design promise 3: the ratio on the first minibatch is 1 for every process and net, here summed over the
    chunk.
    """
    chain, difference = _chain(process, net, Explore(level=0.7, min_std=0.05))
    assert len(chain.steps) >= 3
    assert chain.log_prob.isfinite().all()
    assert difference < 1e-5


@pytest.mark.parametrize("process", ["flow", "diffusion"])
def test_shuffled_transitions_have_the_same_log_probs(process: str) -> None:
    """PPO's minibatches mix samples and transitions: one call with a k per sample."""
    policy, obs = policy_of(process, "mlp"), observations(ENV, 3, 2)
    explore, total = Explore(level=0.7, min_std=0.05), policy.process.steps
    with torch.no_grad():
        chain = policy.sample_chain(obs, torch.randn(3, 8, 2), torch.randn(3, total, 8, 2), explore)
        rows, k = torch.tensor([2, 0, 1, 2]), torch.tensor([1, 2, 0, 2])
        following = policy.chain_sampler(explore).stats(policy.features(obs)[rows], chain.x[rows, k], k)
        mixed = gaussian_log_prob(chain.x[rows, k + 1], *following)
    torch.testing.assert_close(mixed, chain.log_prob[rows, k], atol=1e-5, rtol=1e-5)


def test_a_gradient_step_moves_the_ratio() -> None:
    """The log-probability must depend on the weights, or PPO would silently learn nothing."""
    policy, obs = policy_of(), observations(ENV, 3, 2)
    with torch.no_grad():
        chain = policy.sample_chain(obs, torch.randn(3, 8, 2), torch.randn(3, 4, 8, 2), Explore(0.7))
    policy.log_prob(obs, chain).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.net.parameters())


def test_nearly_deterministic_steps_stay_out_of_the_chain() -> None:
    """DDIM ends with std 0 (alpha_bar 1): the last transition is deterministic and not in `steps`."""
    policy, obs = policy_of("diffusion"), observations(ENV, 3, 2)
    noise, draws = torch.randn(3, 8, 2), torch.randn(3, 5, 8, 2)
    other = draws.clone()
    other[:, 4] += 10.0
    chain = policy.sample_chain(obs, noise, draws, Explore(level=1.0))
    assert chain.steps == (0, 1, 2, 3)
    assert policy.sample_chain(obs, noise, other, Explore(level=1.0)).x.equal(chain.x)


def test_a_step_below_the_floor_follows_the_deterministic_path() -> None:
    """A std raised to a floor would add noise that no gradient shapes, and a ratio that dominates."""
    policy, obs = policy_of("diffusion"), observations(ENV, 3, 2)
    stds = policy.process.transitions(5, 1.0).std
    floor = float(stds[2:4].mean())  # between the third and the fourth
    assert stds[2] > floor > stds[3]
    noise, draws = torch.randn(3, 8, 2), torch.randn(3, 5, 8, 2)
    chain = policy.sample_chain(obs, noise, draws, Explore(level=1.0, min_std=floor))
    assert chain.steps == (0, 1, 2)
    other = draws.clone()
    other[:, 3:] += 10.0
    assert policy.sample_chain(obs, noise, other, Explore(level=1.0, min_std=floor)).x.equal(chain.x)


def test_chain_without_exploration_is_the_sample() -> None:
    """Level 0 follows the deterministic process: `sample` is its last point, clipped."""
    for process in PROCESSES:
        policy, obs = policy_of(process), observations(ENV, 4, 2)
        noise = torch.randn(4, 8, 2)
        steps = policy.process.steps
        with torch.no_grad():
            chain = policy.sample_chain(obs, noise, torch.randn(4, steps, 8, 2), Explore(level=0.0))
            assert policy.sample(obs, noise).equal(chain.x[:, -1].clamp(-1.0, 1.0))
            assert policy.log_prob(obs, chain).shape == (4, 0, 8, 2)


def test_exploring_one_step_only() -> None:
    """Flow-SDE: one random transition per rollout is stochastic, the others follow the ODE."""
    policy, obs = policy_of(), observations(ENV, 3, 2)
    chain = policy.sample_chain(obs, torch.randn(3, 8, 2), torch.randn(3, 4, 8, 2), Explore(0.5, steps=(2,)))
    assert chain.steps == (2,)
    assert chain.log_prob.shape == (3, 1, 8, 2)
    with pytest.raises(ConfigError, match=r"\[0, 3\]"):
        policy.sample_chain(obs, torch.randn(3, 8, 2), torch.randn(3, 4, 8, 2), Explore(0.5, steps=(4,)))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("process", ["flow", "diffusion"])
def test_sampling_is_a_pure_function(process: str, net: str) -> None:
    """Same (obs, noise), same chunk, whatever was drawn in between; other noise, other chunk; all in [-1,
    1].
    """
    policy, obs, noise = policy_of(process, net).eval(), observations(ENV, 6, 2), torch.randn(6, 8, 2)
    assert isinstance(policy, ChunkPolicy)
    with torch.no_grad():
        chunk = policy.sample(obs, noise)
        state = torch.get_rng_state()
        policy.train()
        torch.manual_seed(123)
        assert policy.sample(obs, noise).equal(chunk)
        torch.set_rng_state(state)
        assert chunk.shape == (6, 8, 2)
        assert chunk.abs().max() <= 1.0
        assert not policy.sample(obs, noise + 0.5).equal(chunk)
        few = policy.sample(obs, noise, steps=2)
        assert few.shape == chunk.shape
        assert not few.equal(chunk)


def test_rows_are_independent() -> None:
    """A lane gives the same action alone and in a batch: the executor plans whichever lanes are due."""
    policy, obs, noise = policy_of(), observations(ENV, 6, 2), torch.randn(6, 8, 2)
    with torch.no_grad():
        some = policy.sample({k: v[2:4] for k, v in obs.items()}, noise[2:4])
        torch.testing.assert_close(some, policy.sample(obs, noise)[2:4], atol=1e-5, rtol=1e-5)


def test_features_are_normalised_and_in_order() -> None:
    """To * (3 + 2) numbers: all steps of `state`, then all of `goal`, ranges mapped to [-1, 1]."""
    policy = policy_of()
    data = observations(ENV, 50, 1)
    extremes = {k: torch.stack([v.amin(0), v.amax(0)], 1).expand(1, 2, -1) for k, v in data.items()}
    features = policy.features(extremes)
    expected = torch.tensor([[-1.0] * 3 + [1.0] * 3 + [-1.0] * 2 + [1.0] * 2])
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-5)
    assert policy.refine(extremes, torch.ones(1, 2)).equal(torch.ones(1, 2))


def test_pictures_reach_the_chunk() -> None:
    """A policy with a camera depends on the image; training crops differ from the centre."""
    policy, obs = policy_of(env=CAMERA_ENV).eval(), observations(CAMERA_ENV, 3, 2)
    assert policy.features(obs).shape == (3, 2 * (3 + 6))
    dark = obs | {"image.top": torch.zeros_like(obs["image.top"])}
    noise = torch.randn(3, 8, 2)
    assert not policy.sample(obs, noise).equal(policy.sample(dark, noise))
    assert not policy.features(obs, torch.full((3, 1, 2), 0.99)).equal(policy.features(obs))


def test_wrong_inputs_are_refused() -> None:
    """Missing keys, unstacked history and repeated noise vectors are common mistakes of users."""
    policy, obs = policy_of(), observations(ENV, 2, 2)
    with pytest.raises(ConfigError, match="needs observation 'goal'"):
        policy.features({"state": obs["state"]})
    with pytest.raises(ConfigError, match="Stack 2 steps"):
        policy.features(obs | {"goal": obs["goal"][:, -1]})
    with pytest.raises(ConfigError, match="not one vector repeated"):
        policy.sample(obs, torch.randn(2, 1, 2))
    with pytest.raises(ConfigError, match="1 or more, found 0"):
        policy.sample(obs, torch.randn(2, 8, 2), steps=0)
    with pytest.raises(
        ConfigError, match=r"execute=8 exceeds chunk=7.*Set execute to at most 7, or raise chunk"
    ):
        GenerativePolicy.build(
            ENV, Normalizer.fit({"state": torch.zeros(3, 3)}), GenerativeConfig(execute=8, chunk=7)
        )
