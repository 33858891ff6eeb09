"""Steered, residual and direct policies: they start as their base and are restored from checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.checkpoint import load_policy, save_policy
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from policies.tuned.residual import ResidualPolicy
from policies.tuned.single_step import SingleStepPolicy
from policies.tuned.steered import SteeredPolicy
from robo_rl.core.action_map import LatentMap, Origin, ResidualMap
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.nets.actor import Actor, ActorConfig, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.denoiser import MlpDenoiserConfig
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env


def actor(in_dim: int, dim: int, kind: str = "deterministic", trained: bool = False) -> Actor:
    torch.manual_seed(3)
    made = make_actor(ActorConfig(kind, in_dim, dim, (8,)))
    if trained:
        torch.nn.init.normal_(made.net[-1].weight)
    return made


def steered(origin: Origin, rank: int | None = None, trained: bool = False) -> SteeredPolicy:
    action_map = LatentMap(4, 1, 1.5, origin, rank)
    chosen = actor(4 + action_map.ctx_dim, action_map.dim, "gaussian", trained)
    return SteeredPolicy(flow_policy(SPEC), chosen, action_map)


def residual(
    steps: int = 1, gate: bool = False, trained: bool = False, margin: float = 0.0
) -> ResidualPolicy:
    action_map = ResidualMap(1, 0.2, steps)
    critic = CriticEnsemble(4 + steps, (8,), margin=margin) if gate else None
    return ResidualPolicy(flow_policy(SPEC), actor(4 + steps, steps, trained=trained), action_map, critic)


FRESH: dict[str, Callable[[], SavedPolicy]] = {
    "steered from gaussian": lambda: steered("gaussian"),
    "steered, low rank": lambda: steered("gaussian", rank=2),
    "residual per step": lambda: residual(),
    "residual per chunk": lambda: residual(2),
    "gated residual": lambda: residual(gate=True),
    "residual on steering": lambda: ResidualPolicy(steered("gaussian"), actor(5, 1), ResidualMap(1, 0.2)),
}


def fly(policy: SavedPolicy, scale: float = 1.0, steps: int = 40) -> torch.Tensor:
    """All actions of a closed loop through the executor."""
    with make_env(3) as env:
        executor, noise, root = ChunkExecutor(policy, 3), EpisodeNoise((4, 1), scale), ("fly",)
        executor.reset(env.reset(EpisodeSeeds(root)))
        first = EpisodeSeeds(root)
        noise.reset(range(3), [next(first) for _ in range(3)])
        actions = []
        for _ in range(steps):
            actions.append(executor.act(noise))
            obs, _, _, _, info = env.step(env.spec.action.denormalize(actions[-1]))
            executor.observe(info["final_obs"])
            ended = torch.nonzero(info["final_mask"]).flatten()
            executor.reset(obs, ended)
            noise.reset(ended.tolist(), info["next_seed"][ended].tolist())
    return torch.stack(actions)


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_policy_is_its_base_bit_for_bit(name: str) -> None:
    """Promise 1, over entire episodes: evaluation at step 0 equals the base."""
    assert torch.equal(fly(FRESH[name]()), fly(flow_policy(SPEC)))


def test_steering_from_zero_starts_as_the_zero_noise_base() -> None:
    """For any noise input, an untrained steering actor equals the base."""
    assert torch.equal(fly(steered("zero")), fly(flow_policy(SPEC), scale=0.0))


def test_a_trained_actor_changes_the_actions() -> None:
    """The test above can fail: trained weights change the actions."""
    base = fly(flow_policy(SPEC))
    assert not torch.equal(fly(steered("gaussian", trained=True)), base)
    assert not torch.equal(fly(residual(trained=True)), base)


def test_the_gate_keeps_the_base_where_the_critics_prefer_it() -> None:
    """Critics that prefer small actions: corrections are used only where they make the action smaller."""

    class Smaller(CriticEnsemble):
        def forward(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            return -action.abs().sum(-1).expand(2, -1)

    policy = residual(trained=True)
    policy.gate = Smaller(5, (8,))
    base = torch.linspace(-0.9, 0.9, 50).unsqueeze(1)
    out = policy._correct(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), base)
    assert bool((out.abs() <= base.abs()).all())
    assert not torch.equal(out, base)


def test_a_policy_saved_with_the_margins_earlier_name_loads() -> None:
    """Policies saved before the rename store the gate's margin as `doubt`."""
    saved = residual(gate=True, trained=True, margin=0.5).config()
    saved["gate"]["doubt"] = saved["gate"].pop("margin")
    gate = ResidualPolicy.from_config(saved).gate
    assert gate is not None
    assert gate.margin == 0.5


def test_a_gate_with_a_margin_needs_both_heads_for_a_correction() -> None:
    """One head prefers large actions and the other, less strongly, small ones: large ones win in the mean
    only.
    """

    class Divided(CriticEnsemble):
        def forward(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            size = action.abs().sum(-1)
            return torch.stack([2.0 * size, -size])

    policy = residual(trained=True)
    policy.gate = Divided(5, (8,))
    base = torch.linspace(-0.9, 0.9, 50).unsqueeze(1)
    features = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(policy._correct(features, base), base)
    policy.gate.margin = 1.0
    assert torch.equal(policy._correct(features, base), base)


@pytest.mark.parametrize(
    "build",
    [
        lambda: steered("zero", rank=2, trained=True),
        lambda: residual(gate=True, trained=True),
        lambda: residual(gate=True, trained=True, margin=0.1),
        lambda: residual(2, trained=True),
        lambda: ResidualPolicy(
            steered("gaussian", trained=True), actor(5, 1, trained=True), ResidualMap(1, 0.2)
        ),
        lambda: DirectPolicy(SPEC, actor=actor(2, 1, "gaussian", trained=True)),
        lambda: SingleStepPolicy(
            SPEC, flow_policy(SPEC).encoder, MlpDenoiserConfig(width=8, depth=1), 2, 4, 2
        ),
    ],
)
def test_checkpoints_bring_back_the_same_policy(build: Callable[[], SavedPolicy], tmp_path: Path) -> None:
    """Nested policies store their base inline; the loaded one acts identically bit for bit."""
    policy = build()
    save_policy(tmp_path, policy)
    loaded = load_policy(tmp_path)
    obs = {"state": torch.randn(5, policy.obs_steps, 2)}
    noise = torch.randn(5, policy.chunk, 1)
    with torch.no_grad():
        chunk = policy.sample(obs, noise)
        assert torch.equal(loaded.sample(obs, noise), chunk)
        assert torch.equal(loaded.refine(obs, chunk[:, 0]), policy.refine(obs, chunk[:, 0]))


def test_the_heads_jump_is_the_identity_at_the_end_of_the_process() -> None:
    """The boundary condition that consistency distillation needs, by construction."""
    head = SingleStepPolicy(SPEC, flow_policy(SPEC).encoder, MlpDenoiserConfig(width=8, depth=1), 2, 4, 2)
    x = torch.randn(3, 4, 1)
    assert torch.equal(head.jump(torch.randn(3, 4), x, torch.zeros(3)), x)
