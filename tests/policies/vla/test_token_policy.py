"""Actions as tokens: bins, draws by noise, causal attention, and one pass that equals token by token."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from policies.base.tokens import Tokens
from policies.checkpoint import load_policy, save_policy
from policies.deploy.bundle_writer import write_bundle
from policies.deploy.export import trace
from policies.deploy.prefix_export import HeadGraph
from policies.deploy.runner import OnnxPolicy
from policies.vla.cond import Cond
from policies.vla.config import VlaConfig, VlaFlowConfig, check_config
from policies.vla.token_expert import TokenExpert
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.instruction import INSTRUCTION
from tests.policies.small_vla import SPEC, TP, drawn, seen, small_vla, token_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

OBS = ("right", "go to the left side", "right")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def in_dtype(cond: Cond, dtype: torch.dtype) -> Cond:
    keys, values = (tuple(layer.to(dtype) for layer in layers) for layers in (cond.keys, cond.values))
    return replace(cond, keys=keys, values=values, state=cond.state.to(dtype))


def test_bins_by_hand() -> None:
    """Four bins of width 0.5; what lies outside belongs to the bins at the ends."""
    process = Tokens(bins=4, steps=2)
    values = torch.tensor([-2.0, -1.0, -0.51, -0.49, 0.0, 0.6, 1.0, 3.0])
    assert process.token(values).tolist() == [0, 0, 0, 1, 2, 3, 3, 3]
    assert process.value(torch.arange(4)).tolist() == [-0.75, -0.25, 0.25, 0.75]


@pytest.mark.parametrize("bins", [2, 3, 7, 100, 256, 1000])
@DTYPES
def test_the_centre_of_a_bin_is_in_it(bins: int, dtype: torch.dtype) -> None:
    """So that a stored chunk gives its tokens back."""
    process, every = Tokens(bins, 1), torch.arange(bins)
    assert torch.equal(process.token(process.value(every).to(dtype)), every)


def test_noise_draws_by_the_distribution_function() -> None:
    """Probabilities 0.2, 0.5, 0.3: zero noise is the median, and bins change at Phi(z) = 0.2 and 0.7.
    Neither end draws a bin without probability.
    """
    process, logits = Tokens(3, 1), torch.tensor([[0.2, 0.5, 0.3]]).log()
    noise = torch.tensor([-0.85, -0.84, 0.0, 0.52, 0.53])  # Phi: 0.198, 0.2005, 0.5, 0.698, 0.702
    assert process.draw(logits.expand(5, -1), noise).tolist() == [0, 1, 1, 1, 2]
    sure = torch.tensor([[-90.0, 0.0, -90.0]]).expand(4, -1)
    assert process.draw(sure, torch.tensor([-9.0, -40.0, 9.0, 40.0])).tolist() == [1, 1, 1, 1]


def test_draws_have_the_frequencies_of_the_logits() -> None:
    """20,000 draws at temperature 2, where the probabilities are those of half the logits."""
    process, logits = Tokens(5, 1), torch.tensor([[0.0, 2.0, -1.0, 1.0, 3.0]])
    noise = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    tokens = process.draw(logits.expand(len(noise), -1), noise, temperature=2.0)
    found = tokens.bincount(minlength=5) / len(noise)
    assert (found - (logits[0] / 2.0).softmax(0)).abs().max() < 0.015


@torch.no_grad()
@DTYPES
def test_one_pass_equals_token_by_token(dtype: torch.dtype) -> None:
    """Drawing again from the logits of one pass gives the same tokens, so both have the same distribution."""
    policy, noise = token_vla(), drawn(3).to(dtype)
    cond = in_dtype(policy.encode(seen(*OBS)), dtype)
    process, net = policy.process, policy.net.to(dtype)
    assert isinstance(net, TokenExpert)
    assert isinstance(process, Tokens)
    chunk = policy.sample_from(cond, noise)
    logits = net(chunk, cond)
    again = process.draw(logits.flatten(0, 1), noise.flatten())
    assert torch.equal(process.value(again).to(dtype).view_as(chunk), chunk)
    assert chunk.unique().numel() > 4
    first = net.sample(cond, noise, count=3)
    assert torch.equal(first.flatten(1)[:, :3], chunk.flatten(1)[:, :3])
    assert (first.flatten(1)[:, 3:] == 0.0).all()
    torch.testing.assert_close(net(chunk, cond, 3), logits[:, :3])


@torch.no_grad()
def test_a_token_sees_those_before_it_alone() -> None:
    policy = token_vla()
    cond, chunk = policy.encode(seen("right")), drawn(1).tanh()
    other = chunk.clone()
    other.view(-1)[4] = -chunk.view(-1)[4]
    before, after = policy.net(chunk, cond), policy.net(other, cond)
    assert torch.equal(before[:, :5], after[:, :5])
    assert ((before[:, 5:] - after[:, 5:]).abs().amax(-1) > 1e-4).all()


@torch.no_grad()
def test_words_noise_and_padding() -> None:
    """Other words give another chunk, larger noise of the first token a larger action; what stands beside a
    row in a batch changes nothing.
    """
    policy, noise = token_vla(), torch.zeros(2, TP, 2)
    obs = seen("right", "go to the left side")
    chunk = policy.sample(obs, noise)
    alone = {key: value[:1] for key, value in obs.items()}
    torch.testing.assert_close(policy.sample(alone, noise[:1]), chunk[:1])
    told = {key: value if key == INSTRUCTION else value[:1].expand_as(value) for key, value in obs.items()}
    chunk = policy.sample(told, noise)
    assert not torch.equal(chunk[0], chunk[1])
    actions = []
    for z in (-3.0, -1.0, 0.0, 1.0, 3.0):
        noise[:, 0, 0] = z
        actions.append(float(policy.sample(obs, noise)[0, 0, 0]))
    assert actions == sorted(actions)
    assert actions[0] < actions[-1]


def test_one_batch_is_learned() -> None:
    """The median of every token becomes that of the data, from words and states alone."""
    policy = token_vla(seed=3, random=False).requires_grad_(True)
    obs, chunk = seen(*OBS), drawn(3).clamp(-1.0, 1.0)
    zero = torch.zeros_like(chunk)
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        loss = policy.bc_loss(obs, chunk, zero, zero[:, 0, 0]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(math.log(16.0), abs=1e-4)  # 16 bins, all alike
    assert losses[-1] < 0.1
    with torch.no_grad():
        assert (policy.sample(obs, zero) - chunk).abs().max() <= 1.0 / 16 + 1e-6


def test_a_saved_policy_is_the_same(tmp_path: Path) -> None:
    save_policy(tmp_path / "policy", token_vla())
    loaded: Any = load_policy(tmp_path / "policy")
    assert torch.equal(loaded.sample(seen(*OBS), drawn(3)), token_vla().sample(seen(*OBS), drawn(3)))


@torch.no_grad()
def test_memory_and_points_reach_the_tokens() -> None:
    """Both are inputs of the decoder as they are of the flow's network."""
    policy = token_vla(memory=2, spatial=1.0)
    obs = seen("right")
    empty = torch.zeros(1, *policy.memory_shape or ())
    noise = drawn(1)
    chunk = policy.sample({**obs, "memory": empty}, noise)
    assert not torch.equal(policy.sample({**obs, "memory": empty + 1.0}, noise), chunk)
    assert policy.net.state_dim == 3 + policy.points_dim


@pytest.mark.long
@torch.no_grad()
@pytest.mark.compile
def test_an_exported_head_repeats_one_step() -> None:
    """Export of one step after another takes minutes for the 64 tokens of a usual chunk. What the graph draws
    is compared below.
    """
    policy, obs = token_vla(), seen(*OBS)
    keys, values, mask, pooled, _ = policy.prefix(obs)
    prefix = {"keys": torch.stack(keys, 1), "values": torch.stack(values, 1), "mask": mask, "pooled": pooled}
    inputs = {"state": obs["state"], **prefix, "noise": drawn(3)}
    graph = trace(HeadGraph(policy, policy), inputs).graph
    repeated = [node for node in graph.nodes if node.target is torch.ops.higher_order.scan]
    assert len(repeated) == 1


@pytest.mark.slow
def test_graphs_draw_the_same_tokens(tmp_path: Path) -> None:
    """Promise 4: the bundle's head is the decoder, token after token in one graph."""
    policy = token_vla()
    made = write_bundle(
        tmp_path / "tokens", policy, SPEC, name="sides", noise="zero", training={}, instruction=OBS[1]
    )
    for noise in (drawn(3), torch.zeros(3, TP, 2)):
        found = OnnxPolicy(made, "cpu").sample(seen(*OBS), noise)
        torch.testing.assert_close(found, policy.sample(seen(*OBS), noise), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (VlaConfig(bins=32), "bins has no effect with policy.head=flow"),
        (VlaConfig(head="tokens", draws=4), "draws has no effect with policy.head=tokens"),
        (VlaConfig(head="tokens", process=VlaFlowConfig(steps=4)), "process has no effect"),
        (VlaConfig(head="tokens", bins=1), "bins=1"),
        (VlaConfig(head="both"), "flow | tokens"),
    ],
)
def test_settings_of_the_other_head_are_refused(config: VlaConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_config(config, TP, 2)


def test_what_needs_a_path_refuses_tokens() -> None:
    policy = token_vla()
    with pytest.raises(ConfigError, match="no path from noise to action"):
        policy.path(policy.encode(seen("right")), drawn(1))
    with pytest.raises(ConfigError, match="8 tokens, found steps=3"):
        policy.sample(seen("right"), drawn(1), steps=3)
    assert small_vla().path(small_vla().encode(seen("right")), drawn(1))[1][0] == 1.0
