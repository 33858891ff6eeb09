"""Action experts for parts of the action: own weights, one prefix, one joint flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from policies.checkpoint import load_policy, save_policy
from policies.deploy.bundle_writer import write_bundle
from policies.deploy.runner import OnnxPolicy
from policies.training import sharded
from policies.vla.config import VlaConfig, check_config
from policies.vla.expert import ActionExpert
from policies.vla.experts import Experts, check_experts
from policies.vla.policy import VlaPolicy
from robo_rl.core.conditioning import empty_memory
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, EnvSpec
from tests.policies.small_vla import SPEC, TP, drawn, seen, small_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

FOUR = EnvSpec("fake/hand", SPEC.obs, ActionSpec((-1.0,) * 4, (1.0,) * 4), 6, 50.0)
HAND, ARM = [3, 0], [2, 1]  # in an order that is not that of the action


def noise(rows: int) -> torch.Tensor:
    return torch.randn(rows, TP, 4, generator=torch.Generator().manual_seed(2))


def policy(**changes: Any) -> VlaPolicy:
    return small_vla(spec=FOUR, experts=[HAND, ARM], **changes)


def experts(vla: VlaPolicy) -> list[ActionExpert]:
    """Those of hand and arm."""
    assert isinstance(vla.net, Experts)
    return [each for each in vla.net.experts if isinstance(each, ActionExpert)]


def changed(before: torch.Tensor, after: torch.Tensor) -> set[int]:
    """Dimensions of the action that differ."""
    return set((before - after).abs().amax((0, 1)).nonzero().flatten().tolist())


@torch.no_grad()
def test_each_dimension_is_given_by_its_expert() -> None:
    """The network's output in the dimensions of an expert is that expert's, in their order."""
    vla, obs = policy(), seen("right", "go to the left side")
    cond, t = vla.encode(obs), torch.tensor([0.3, 0.9])
    out = vla.net(noise(2), t, cond)
    for part, expert in zip((HAND, ARM), experts(vla), strict=True):
        assert torch.equal(out[..., part], expert(noise(2), t, cond))


@torch.no_grad()
def test_other_weights_of_the_arm_change_the_arm_alone() -> None:
    """In a single step. In several the hand follows, because it reads where the arm goes."""
    one, several, obs = policy(steps=1), policy(steps=4), seen("right")
    before = [vla.sample(obs, noise(1)) for vla in (one, several)]
    for vla in (one, several):
        experts(vla)[1].last.bias.add_(0.1)
    after = [vla.sample(obs, noise(1)) for vla in (one, several)]
    assert changed(before[0], after[0]) <= set(ARM)
    assert changed(before[0], after[0])
    assert changed(before[1], after[1]) > set(ARM)


def test_the_loss_of_the_hand_teaches_its_expert_and_the_prefix() -> None:
    """Gradients of its dimensions reach no weight of the arm."""
    vla = policy().requires_grad_(True)
    out = vla.net(noise(1), torch.tensor([0.5]), vla.encode(seen("right")))
    out[..., HAND].square().sum().backward()
    hand, arm = experts(vla)
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in hand.parameters())
    assert all(weight.grad is None or weight.grad.eq(0).all() for weight in arm.parameters())
    assert any(weight.grad is not None for weight in vla.backbone.parameters())


def test_parts_are_learned_that_depend_on_each_other() -> None:
    """Two demonstrated grasps from one observation, arm and hand both at -0.8 or both at 0.8: in chunks drawn
    from noise arm and hand agree.
    """
    torch.manual_seed(0)
    vla = policy(steps=10).train().requires_grad_(True)
    for expert in experts(vla):
        torch.nn.init.zeros_(expert.last.weight)
        torch.nn.init.zeros_(expert.last_modulation.weight)
    obs = seen("right")
    with torch.no_grad():
        cond = vla.encode(obs)
    optimizer, rows = torch.optim.Adam(vla.net.parameters(), 3e-3), 32
    many, rng = cond.repeat(rows), torch.Generator().manual_seed(3)
    sides = torch.tensor([-0.8, 0.8]).repeat(rows // 2).view(-1, 1, 1).expand(-1, TP, 4)
    for _ in range(80):
        draw, u = torch.randn(rows, TP, 4, generator=rng), torch.rand(rows, generator=rng)
        loss = vla._flow().bc_loss(vla._velocity(many), many.pooled, sides, draw, u).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        chunk = vla.eval().sample_from(many, torch.randn(rows, TP, 4, generator=rng))
    hand, arm = (chunk[:, :, part].mean((1, 2)) for part in (HAND, ARM))
    assert (hand.sign() == arm.sign()).float().mean() > 0.95
    assert 0.2 < (hand > 0).float().mean() < 0.8


def test_one_expert_is_the_plain_policy() -> None:
    """The same weights from the same seed, with the same names."""
    plain, named = small_vla(), small_vla(experts=[[1, 0]])
    assert isinstance(named.net, ActionExpert)
    assert all(torch.equal(value, named.state_dict()[key]) for key, value in plain.state_dict().items())
    assert torch.equal(plain.sample(seen("right"), drawn(1)), named.sample(seen("right"), drawn(1)))


@torch.no_grad()
@pytest.mark.parametrize("more", [{}, {"memory": 2, "spatial": 1.0}], ids=["plain", "memory and points"])
def test_a_saved_policy_acts_alike(more: dict[str, Any], tmp_path: Path) -> None:
    vla = policy(**more)
    obs = seen("right") | (empty_memory(vla, 1) if vla.memory is not None else {})
    chunk = vla.sample(obs, noise(1))
    save_policy(tmp_path, vla)
    loaded = load_policy(tmp_path)
    assert isinstance(loaded, VlaPolicy)
    assert loaded.shape.experts == [HAND, ARM]
    assert torch.equal(loaded.sample(obs, noise(1)), chunk)
    if vla.memory is not None:  # both enter every expert
        remembered = {**obs, "memory": obs["memory"] + 1.0}
        assert changed(vla.sample(remembered, noise(1)), chunk) == {0, 1, 2, 3}
        assert vla.predicted_points(vla.encode(obs)).shape == (1, 2, 2)


@pytest.mark.slow
def test_graphs_equal_torch(tmp_path: Path) -> None:
    """Promise 4, with a memory and points, for experts whose dimensions are not in the action's order."""
    vla, obs = policy(memory=2, spatial=1.0), seen("right", "go to the left side", "right")
    made = write_bundle(tmp_path / "b", vla, FOUR, name="hand", noise="gaussian", training={})
    obs |= {key: value + 1.0 for key, value in empty_memory(vla, 3).items()}
    found = OnnxPolicy(made, "cpu").sample(obs, noise(3))
    torch.testing.assert_close(found, vla.sample(obs, noise(3)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([[0, 1], [2]], "0 to 3, once; found 3: in no expert"),
        ([[0, 1, 2], [2, 3]], "found 2: named more than once"),
        ([[0, 1, 2, 3], [4, -1]], "found -1, 4: no dimension of the action"),
        ([[0, 1, 2, 3], []], "found an expert has none"),
        ([[0, 0], [5]], "found 1, 2, 3: in no expert; 0: named more than once; 5: no dimension"),
        ([[0]], "found 1, 2, 3: in no expert"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: list[list[int]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_experts(parts, 4)
    with pytest.raises(ConfigError, match=words):
        small_vla(spec=FOUR, experts=parts)


def test_training_in_shards_divides_the_layers_of_an_expert_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP2 takes a module after those inside it."""
    monkeypatch.setattr(sharded, "LAYER", 1000)
    vla = policy()
    layers = list(sharded._layers(vla))
    for expert in experts(vla):
        assert all(layers.index(block) < layers.index(expert) for block in expert.blocks)


def test_tokens_are_given_by_one_decoder() -> None:
    with pytest.raises(ConfigError, match=r"experts has no effect with policy\.head=tokens"):
        check_config(VlaConfig(head="tokens", experts=[[0], [1]]), TP, 2)
