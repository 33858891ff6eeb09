"""Memory of a vision-language-action policy: kept by the executor, learned as it is used, and forgotten."""

from __future__ import annotations

import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.instructed_policy import InstructedPolicy
from policies.vla.backbone import make_backbone
from policies.vla.config import VlaConfig
from policies.vla.packed import PackedPolicy
from robo_rl.core.conditioning import HELD, MEMORY, empty_memory, encode
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from tests.policies.small_vla import CAMERAS, TA, TP, drawn, seen, small_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

K = 2
WORDS = ("right", "go to the left side", "right")


def frame(seed: int) -> Obs:
    """Observation of three lanes at one instant, (n, *shape)."""
    return {key: value[:, 0] for key, value in seen(*WORDS, seed=seed).items()}


def played(executor: ChunkExecutor, seeds: list[int]) -> torch.Tensor:
    """The last chunk after decisions on these frames, with the same noise for each."""
    executor.reset(frame(seeds[0]))
    for i, seed in enumerate(seeds):
        if i:
            executor.observe(frame(seed))
        chunk = executor.plan(executor.lanes, drawn(3))
    return chunk


@torch.no_grad()
def test_a_chunk_depends_on_the_last_decisions_alone() -> None:
    """With K = 2 the observation of two decisions ago still matters, that of three ago is forgotten."""
    policy = small_vla(memory=K)
    chunk = played(ChunkExecutor(policy, 3), [9, 1, 2, 3])
    torch.testing.assert_close(chunk, played(ChunkExecutor(policy, 3), [8, 1, 2, 3]))
    assert (chunk - played(ChunkExecutor(policy, 3), [9, 7, 2, 3])).abs().max() > 1e-2


@torch.no_grad()
def test_an_episode_starts_without_memory_in_its_lane_alone() -> None:
    executor = ChunkExecutor(small_vla(memory=K), 3)
    played(executor, [1, 2])
    executor.observe(frame(3))
    executor.reset(frame(3), torch.tensor([1]))
    memory = executor.history()[MEMORY]
    assert memory[1].eq(0).all()
    assert memory[[0, 2], :, 0].eq(1).all()


@torch.no_grad()
def test_a_saved_executor_continues_with_its_memory() -> None:
    policy = small_vla(memory=K)
    first, second = ChunkExecutor(policy, 3), ChunkExecutor(policy, 3)
    played(first, [1, 2])
    second.load_state_dict(first.state_dict())
    for each in (first, second):
        each.observe(frame(3))
    chunks = [each.plan(each.lanes, drawn(3)) for each in (first, second)]
    torch.testing.assert_close(chunks[0], chunks[1], rtol=0, atol=0)


@torch.no_grad()
def test_training_sees_what_acting_sees() -> None:
    """The condition of a window of three observations is that of the executor at its third decision; of a
    window that starts with the episode, that at its second.
    """
    policy, executor = small_vla(memory=K), ChunkExecutor(small_vla(memory=K), 3)
    played(executor, [1, 2])
    executor.observe(frame(3))
    acting = encode(policy, executor.history())
    window = {key: torch.stack([frame(seed)[key] for seed in (1, 2, 3)], 1) for key in frame(1)}
    learning = policy.remembered(window | {HELD: torch.ones(3, K, dtype=torch.bool)})
    torch.testing.assert_close(learning.state, acting.state, atol=1e-5, rtol=0)
    torch.testing.assert_close(learning.keys, acting.keys, atol=1e-5, rtol=0)

    played(executor, [2])
    executor.observe(frame(3))
    acting = encode(policy, executor.history())
    short = policy.remembered(window | {HELD: torch.tensor([[False, True]] * 3)})
    torch.testing.assert_close(short.state, acting.state, atol=1e-5, rtol=0)
    assert (short.state - learning.state).abs().max() > 1e-3


@torch.no_grad()
def test_a_decision_enters_the_memory_with_the_next_observation() -> None:
    """A correction of the first action sees what the plan saw; a lane that ends forgets its last plan."""
    executor = ChunkExecutor(small_vla(memory=K), 3)
    executor.reset(frame(1))
    seen_by = list[torch.Tensor]()

    def refine(obs: Obs, action: torch.Tensor) -> torch.Tensor:
        seen_by.append(obs[MEMORY].clone())
        return action

    for seed in (2, 3):
        executor.act(EpisodeNoise((TP, 2), scale=0.0), refine)
        executor.observe(frame(seed))
    assert seen_by[0].eq(0).all()
    assert seen_by[1][:, :, 0].tolist() == [[0.0, 1.0]] * 3
    executor.plan(executor.lanes, drawn(3))
    executor.reset(frame(4), torch.tensor([1]))
    executor.observe(frame(5))
    assert executor.history()[MEMORY][:, :, 0].tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_the_loss_teaches_what_to_remember() -> None:
    """Gradients reach moment tokens, and pictures of earlier decisions."""
    policy = small_vla(memory=K).requires_grad_(True)
    window = {key: torch.stack([frame(seed)[key] for seed in (1, 2, 3)], 1) for key in frame(1)}
    obs = window | {HELD: torch.ones(3, K, dtype=torch.bool)}
    policy.bc_loss(obs, torch.zeros(3, TP, 2), drawn(3), torch.rand(3)).mean().backward()
    assert policy.memory is not None
    assert policy.memory.tokens.grad is not None
    assert policy.memory.tokens.grad.abs().min() > 0


@torch.no_grad()
def test_a_policy_that_is_told_other_words_remembers() -> None:
    told = InstructedPolicy(small_vla(memory=K), WORDS[1])
    executor = ChunkExecutor(told, 3)
    executor.reset(frame(1))
    executor.act(EpisodeNoise((TP, 2), scale=0.0))
    executor.observe(frame(2))
    assert executor.history()[MEMORY][:, -1, 0].eq(1).all()


def test_what_cannot_hold_a_memory_says_so() -> None:
    policy, obs = small_vla(memory=K), seen("right")
    with pytest.raises(ConfigError, match=r"needs 'memory' of shape .* found none"):
        policy.sample(obs, drawn(1))
    policy.sample(obs | empty_memory(policy, 1), drawn(1))
    with pytest.raises(ConfigError, match=f"{TA} steps apart, found execute=1"):
        ChunkExecutor(policy, 1, execute=1)
    with pytest.raises(ConfigError, match="method=steering or residual"):
        PackedPolicy(policy)
    with pytest.raises(ConfigError, match=r"policy\.memory=2 needs policy\.backbone=tiny"):
        make_backbone([(32, 32)] * len(CAMERAS), VlaConfig(memory=K, backbone="models/vlm"), ())
