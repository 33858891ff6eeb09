"""Processes: diffusers' numbers, steps by hand, and the marginals that stochastic steps must preserve."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler
from torch import Tensor

from policies.base.chain import Explore, deterministic_sample, sample_chain
from policies.base.diffusion import Diffusion, DiffusionConfig
from policies.base.flow import Flow, FlowConfig, velocity_of
from policies.base.process import (
    DenoisingTransitions,
    ProcessConfig,
    load_process,
    make_process,
    process_config,
)
from robo_rl.core.errors import ConfigError, MissingDependencyError, UnknownNameError

TRAINING: dict[str, Any] = {"num_train_timesteps": 100, "beta_schedule": "squaredcos_cap_v2"}


def test_forward_noising_equals_diffusers() -> None:
    """x_t and the targets of all three predictions, at every 11th training step."""
    scheduler = DDPMScheduler(**TRAINING)
    step = torch.arange(0, 100, 11)
    chunk, noise = torch.rand(len(step), 4, 2) * 2.0 - 1.0, torch.randn(len(step), 4, 2)
    velocity = scheduler.get_velocity(chunk, noise, step)
    for prediction, target in (("epsilon", noise), ("sample", chunk), ("v_prediction", velocity)):
        process = Diffusion.build(DiffusionConfig(prediction=prediction))
        x, wanted = process.corrupt(chunk, noise, step)
        torch.testing.assert_close(x, scheduler.add_noise(chunk, noise, step))
        torch.testing.assert_close(wanted, target)


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize(
    ("spacing", "steps"),
    [("trailing", 1), ("trailing", 5), ("trailing", 10), ("trailing", 100), ("leading", 7), ("leading", 10)],
)
def test_ddim_equals_diffusers(steps: int, prediction: str, eta: float, spacing: str) -> None:
    """Whole chains against DDIMScheduler.step with the same spacing, clipping and variance noise."""
    torch.manual_seed(0)
    process = Diffusion.build(DiffusionConfig(prediction=prediction, spacing=spacing))
    scheduler = DDIMScheduler(**TRAINING, timestep_spacing=spacing, prediction_type=prediction)
    scheduler.set_timesteps(steps)
    assert process.grid(steps).tolist() == scheduler.timesteps.tolist()
    transitions = process.transitions(steps, eta)
    ours = theirs = torch.randn(3, 4, 2, dtype=torch.double)
    for k, t in enumerate(scheduler.timesteps):
        out, noise = torch.randn(2, 3, 4, 2, dtype=torch.double)
        theirs = scheduler.step(out, t, theirs, eta=eta, variance_noise=noise if eta else None).prev_sample
        mean, std = transitions.stats(out, ours, k)
        ours = mean + std * noise
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)
        ours = theirs  # the first step divides by 1.5e-5: do not let its rounding travel


def test_diffusion_times_are_training_steps() -> None:
    """The network's time input in sampling must equal that of training: step / 100, from 0.99 to 0.09 for K =
    10.
    """
    times = Diffusion.build(DiffusionConfig()).transitions(10).times
    torch.testing.assert_close(times, torch.arange(99, 0, -10) / 100)


def test_flow_grid_is_explicit() -> None:
    """K = 4: t = 1, 3/4, 1/2, 1/4, each step covers 1/4 of the path."""
    transitions = Flow(FlowConfig(prediction="velocity")).transitions(4)
    assert transitions.times.tolist() == [1.0, 0.75, 0.5, 0.25]
    mean, std = transitions.stats(torch.full((1, 1, 1), 2.0), torch.full((1, 1, 1), 1.0), 0)
    assert (mean.item(), std.item()) == (0.5, 0.0)


def test_flow_predictions_follow_the_same_path() -> None:
    """One known action: velocity (x - action) / t and the action itself lead to it along the same points."""
    action, noise = torch.tensor([[[0.5, -0.25]]]), torch.tensor([[[2.0, 1.0]]])
    by_action = Flow(FlowConfig(prediction="sample"))
    by_velocity = Flow(FlowConfig(prediction="velocity"))
    cond = torch.zeros(1, 1)

    def velocity(x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        return (x - action) / t.view(-1, 1, 1)

    torch.testing.assert_close(
        deterministic_sample(by_action, lambda x, t, c: action.expand_as(x), cond, noise, 7), action
    )
    torch.testing.assert_close(deterministic_sample(by_velocity, velocity, cond, noise, 7), action)
    for level in (0.0, 0.7):
        a, v = by_action.transitions(7, level), by_velocity.transitions(7, level)
        for k in range(7):
            x = torch.randn(1, 1, 2)
            t = v.times[k].expand(1)
            mean_a, mean_v = a.stats(action, x, k)[0], v.stats(velocity(x, t, cond), x, k)[0]
            torch.testing.assert_close(mean_a, mean_v, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "level", "steps"),
    [
        (FlowConfig(prediction="velocity"), 0.0, 100),
        (FlowConfig(prediction="velocity"), 0.5, 100),
        (FlowConfig(prediction="sample"), 0.5, 100),
        (FlowConfig(prediction="preconditioned"), 0.0, 100),
        (FlowConfig(prediction="preconditioned"), 0.5, 100),
        (DiffusionConfig(prediction="epsilon", clip=math.inf), 0.0, 100),
        (DiffusionConfig(prediction="epsilon", clip=math.inf), 1.0, 100),
    ],
)
def test_exact_nets_reach_the_data_distribution(config: ProcessConfig, level: float, steps: int) -> None:
    """Actions ~ N(0.3, 0.2^2): with the exact regression functions, the deterministic and the stochastic path
    must end with this mean and std. Only this test detects a wrong drift or noise scale.
    """
    mean, std, n = 0.3, 0.2, 20_000
    process = make_process(config)
    net = _gaussian_net(process, config, mean, std)
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(n, 1, 1, generator=rng)
    draws = torch.randn(n, steps, 1, 1, generator=rng)
    chain = sample_chain(process, net, torch.zeros(n, 1), noise, draws, Explore(level, min_std=1e-6))
    end = chain.x[:, -1]
    assert end.mean().item() == pytest.approx(mean, abs=0.01)
    assert end.std().item() == pytest.approx(std, rel=0.08)


def _gaussian_net(process: Any, config: ProcessConfig, mean: float, std: float) -> Any:
    """E[target | x_t] for actions N(mean, std^2): x_t = signal a + spread noise is jointly Gaussian with
    both.
    """

    def net(x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        if isinstance(process, Diffusion):
            alpha = process.alphas_cumprod[(t * 100).round().long()].view(-1, 1, 1)
            signal, spread = alpha.sqrt(), (1.0 - alpha).sqrt()
        else:
            spread = t.view(-1, 1, 1)
            signal = 1.0 - spread
        surprise = (x - signal * mean) / ((signal * std) ** 2 + spread**2)
        action, noise = mean + signal * std**2 * surprise, spread * surprise
        if isinstance(config, FlowConfig):
            skip, out = velocity_of(config.prediction, t.view(-1, 1, 1))
            return action if config.prediction == "sample" else (noise - action - skip * x) / out
        return noise

    return net


def test_preconditioned_targets_have_unit_variance_and_no_linear_part() -> None:
    """Actions N(0, 0.5^2): at every t the target has variance 1 and is uncorrelated with x_t; skip is 1 at t
    = 1, where x_t is the noise, and -1 at t = 0, where it is the action.
    """
    rng = torch.Generator().manual_seed(0)
    action, noise = 0.5 * torch.randn(200_000, generator=rng), torch.randn(200_000, generator=rng)
    for time in (1e-6, 0.2, 0.5, 0.8, 1.0):
        t = torch.tensor(time)
        skip, out = velocity_of("preconditioned", t)
        x = t * noise + (1.0 - t) * action
        target = (noise - action - skip * x) / out
        assert target.var().item() == pytest.approx(1.0, rel=0.02)
        assert (target * x).mean().item() == pytest.approx(0.0, abs=0.01)
    assert velocity_of("preconditioned", torch.tensor(1.0))[0].item() == pytest.approx(1.0)
    assert velocity_of("preconditioned", torch.tensor(0.0))[0].item() == pytest.approx(-1.0)


def test_losses_by_hand() -> None:
    """One element. Flow at u = 0.5: x = 0.5 * 2 + 0.5 * 1; a net that outputs x errs by 1.5 - 1, or 1.5 - (2
    - 1).
    """
    chunk, noise, u = torch.ones(1, 1, 1), torch.full((1, 1, 1), 2.0), torch.tensor([0.5])

    def echo(x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        return x

    cond = torch.zeros(1, 1)
    assert Flow(FlowConfig(prediction="sample")).bc_loss(echo, cond, chunk, noise, u).tolist() == [0.25]
    assert Flow(FlowConfig(prediction="velocity")).bc_loss(echo, cond, chunk, noise, u).tolist() == [0.25]
    diffusion = Diffusion.build(DiffusionConfig(prediction="epsilon"))
    alpha = diffusion.alphas_cumprod[50]
    expected = (alpha.sqrt() + (1 - alpha).sqrt() * 2.0 - 2.0).square()
    torch.testing.assert_close(diffusion.bc_loss(echo, cond, chunk, noise, u), expected.view(1))


def test_training_times_follow_the_power() -> None:
    """time_power p: t^(p-1) density means P(t <= 1/4) = (1/4)^p, so p = 1.5 gives 1/8."""
    seen: list[Tensor] = []

    def spy(x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        seen.append(t)
        return x

    u = (torch.arange(8000) + 0.5) / 8000
    chunk = torch.zeros(8000, 1, 1)
    Flow(FlowConfig(time_power=1.5)).bc_loss(spy, chunk[:, 0], chunk, chunk, u)
    assert (seen[0] <= 0.25).float().mean().item() == pytest.approx(0.125, abs=1e-3)


def test_each_sample_may_have_its_own_transition() -> None:
    """PPO shuffles over samples x transitions: stats at k (b,) must equal stats at each k."""
    for process in (Flow(FlowConfig()), Diffusion.build(DiffusionConfig())):
        transitions: DenoisingTransitions = process.transitions(4, 0.5)
        out, x, k = torch.randn(3, 2, 2), torch.randn(3, 2, 2), torch.tensor([3, 0, 2])
        mean, std = transitions.stats(out, x, k)
        assert transitions.time(k, x).equal(transitions.times[k])
        for i, step in enumerate(k.tolist()):
            one_mean, one_std = transitions.stats(out[i : i + 1], x[i : i + 1], step)
            assert mean[i].equal(one_mean[0])
            assert std[i].item() == one_std.item()


def test_impossible_processes_are_refused() -> None:
    """Each message says what was found and what is possible."""
    with pytest.raises(ConfigError, match="1 to 100, found 101"):
        Diffusion.build(DiffusionConfig()).transitions(101)
    with pytest.raises(ConfigError, match="found 0"):
        Flow(FlowConfig(steps=0))
    with pytest.raises(UnknownNameError, match=r"'eps'\. Did you mean 'epsilon'"):
        Diffusion(DiffusionConfig(prediction="eps"))
    with pytest.raises(ConfigError, match="Unknown diffusion schedule 'cosine'"):
        Diffusion.build(DiffusionConfig(schedule="cosine"))
    with pytest.raises(UnknownNameError, match="Did you mean 'flow'"):
        make_process(ProcessConfig("flw"))
    with pytest.raises(ConfigError, match="stps"):
        process_config({"name": "flow", "stps": 3})


def test_a_loaded_process_needs_no_diffusers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot has no diffusers: tables are loaded with the weights, and before that samples are NaN."""
    trained = Diffusion.build(DiffusionConfig())

    def absent(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'diffusers'", name="diffusers")

    monkeypatch.setattr("policies.base.diffusion.import_module", absent)
    with pytest.raises(MissingDependencyError, match=r"pip install 'robo-rl\[train\]'"):
        Diffusion.build(DiffusionConfig())
    loaded = load_process(process_config(trained.config()))
    assert isinstance(loaded, Diffusion)
    assert loaded.transitions(5).mean_out.isnan().all()
    loaded.load_state_dict(trained.state_dict())
    assert loaded.transitions(5).mean_out.equal(trained.transitions(5).mean_out)


def test_misspelt_prediction_gets_a_suggestion() -> None:
    """`process.prediction=velocty` names what was meant."""
    with pytest.raises(UnknownNameError, match="Did you mean 'velocity'"):
        Flow(FlowConfig(prediction="velocty"))
