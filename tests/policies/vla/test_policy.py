"""The vision-language-action policy: one prefix per chunk, words that matter, padding that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from policies.checkpoint import load_policy, save_policy
from policies.instructed_policy import InstructedPolicy
from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from policies.vla.tiny import KEYPOINTS
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, MOST_BYTES, to_bytes
from robo_rl.data.normalizer import Normalizer
from tests.policies.small import flow_policy

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

PICTURE = ArraySpec((32, 32, 3), "uint8")
STATE = {"state": ArraySpec((3,), unit="m")}
SEEING = STATE | {"image.top": PICTURE, "image.wrist": PICTURE, INSTRUCTION: INSTRUCTION_SPEC}
TP = 4
WORDS = ("close", "drawer", "left", "open", "right", "the")


def env(obs: dict[str, ArraySpec]) -> EnvSpec:
    return EnvSpec("fake/words", obs, ActionSpec((-1.0,) * 2, (1.0,) * 2), 8, 50.0)


def policy(**changes: Any) -> VlaPolicy:
    """Small policy whose expert is not at its zero start, where actions would depend on nothing."""
    torch.manual_seed(0)
    config = VlaConfig(**{"width": 32, "layers": 2, "heads": 4, "kv_heads": 2} | changes)
    made = VlaPolicy(env(SEEING), Normalizer({"state": (3,)}), config, TP, 2, WORDS)
    for parameter in made.net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


def observation(*texts: str) -> Obs:
    """One row for each text, with the same pictures and states in all of them."""
    rng = torch.Generator().manual_seed(1)
    pictures = {
        key: torch.randint(0, 256, (1, 1, *array.shape), generator=rng, dtype=torch.uint8)
        for key, array in SEEING.items()
        if key.startswith("image.")
    }
    rows = {"state": torch.rand(1, 1, 3, generator=rng), **pictures}
    words = torch.stack([torch.from_numpy(to_bytes(text).copy()) for text in texts]).unsqueeze(1)
    return {key: value.repeat_interleave(len(texts), 0) for key, value in rows.items()} | {INSTRUCTION: words}


def noise(rows: int) -> torch.Tensor:
    return torch.randn(1, TP, 2, generator=torch.Generator().manual_seed(2)).expand(rows, -1, -1)


@torch.no_grad()
def test_other_words_give_another_action() -> None:
    vla = policy()
    chunk = vla.sample(observation("open the drawer", "close the drawer"), noise(2))
    assert chunk.shape == (2, TP, 2)
    assert (chunk[0] - chunk[1]).abs().max() > 1e-3


@torch.no_grad()
def test_a_state_in_float64_gives_the_same_action() -> None:
    """Simulators and imported datasets hold float64; the networks compute in float32."""
    vla, obs = policy(), observation("open")
    expected = vla.sample(obs, noise(1))
    assert torch.equal(vla.sample(obs | {"state": obs["state"].double()}, noise(1)), expected)


@torch.no_grad()
def test_padding_changes_nothing() -> None:
    """A short instruction alone, beside a long one, and on a device that pads to the full length."""
    vla = policy()
    alone = vla.sample(observation("open"), noise(1))
    beside = vla.sample(observation("open", "close " * 20), noise(2))
    torch.testing.assert_close(beside[:1], alone, atol=1e-5, rtol=0)
    full = observation("open", "x" * MOST_BYTES)
    torch.testing.assert_close(vla.sample(full, noise(2))[:1], alone, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_prefix_is_encoded_once_per_chunk() -> None:
    """However many transitions the process has, and not at all from an encoded observation."""
    vla, calls = policy(), []
    vla.backbone.register_forward_hook(lambda *_: calls.append(1))
    obs = observation("open the drawer")
    chunk = vla.sample(obs, noise(1), steps=7)
    assert len(calls) == 1
    cond = vla.encode(obs)
    assert torch.equal(vla.sample_from(cond, noise(1), steps=7), chunk)
    assert len(calls) == 2
    assert cond.pooled.shape == (1, 32 + 2 * 2 * KEYPOINTS + 3)  # mean, key points of two cameras, state
    assert torch.equal(vla.features(obs), cond.pooled)
    with pytest.raises(ConfigError, match="Pooled features are for critics"):
        vla.sample_from(cond.pooled, noise(1))


def test_one_batch_overfits() -> None:
    """Chunks that differ by their words alone are learned from one batch."""
    vla = policy(draws=4).train()
    for layer in (vla.net.last, vla.net.last_modulation):
        torch.nn.init.zeros_(layer.weight)
    obs = observation("left", "right")
    chunks = torch.stack([torch.full((TP, 2), -0.8), torch.full((TP, 2), 0.8)])
    optimizer = torch.optim.AdamW(vla.parameters(), lr=2e-3)
    rng = torch.Generator().manual_seed(3)
    losses = []
    for _ in range(80):
        draw, u = torch.randn(2, TP, 2, generator=rng), torch.rand(2, generator=rng)
        loss = vla.bc_loss(obs, chunks, draw, u, torch.full((2, 2, 2), 0.5)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-10:]) < 0.3 * sum(losses[:10])
    with torch.no_grad():
        assert (vla.eval().sample(obs, noise(2)) - chunks).abs().mean() < 0.25


def test_every_part_gets_a_gradient() -> None:
    """Words, both cameras and the state reach the loss."""
    vla = policy().train()
    obs = observation("open", "close")
    vla.bc_loss(obs, torch.rand(2, TP, 2), torch.randn(2, TP, 2), torch.rand(2)).mean().backward()
    parts = (vla.backbone.words, *vla.backbone.cameras, vla.net.state, vla.net.tokens)
    for part in parts:
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in part.parameters())


@torch.no_grad()
def test_film_without_words_is_finite() -> None:
    """The mean of no words: a server refuses a chunk that is not finite."""
    film, obs = policy(film=True), observation("open the drawer", "close the drawer")
    obs[INSTRUCTION] = torch.zeros_like(obs[INSTRUCTION])
    assert film.sample(obs, noise(2)).isfinite().all()


@torch.no_grad()
def test_film_starts_without_effect_and_then_lets_words_change_what_is_seen() -> None:
    """At its zero start the policy is the one without it. Key points, which only pictures decide, then depend
    on the words.
    """
    plain, film = policy(), policy(film=True)
    missing = film.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert missing == [f"backbone.cameras.{i}.film.1.{name}" for i in (0, 1) for name in ("weight", "bias")]
    obs = observation("open the drawer", "close the drawer")
    assert torch.equal(film.sample(obs, noise(2)), plain.sample(obs, noise(2)))
    for name, parameter in film.named_parameters():
        if ".film." in name:
            torch.nn.init.normal_(parameter)
    points = slice(-2 * 2 * KEYPOINTS, None)  # of both cameras
    without, with_film = (vla.encode(obs).pooled[:, points] for vla in (plain, film))
    assert torch.equal(without[0], without[1])
    assert not torch.allclose(with_film[0], with_film[1])


def test_a_saved_policy_acts_alike(tmp_path: Path) -> None:
    """safetensors and JSON hold all of it."""
    vla, obs = policy(), observation("open the drawer")
    save_policy(tmp_path, vla)
    loaded = load_policy(tmp_path)
    assert isinstance(loaded, VlaPolicy)
    assert isinstance(loaded, ChunkPolicy)
    assert torch.equal(loaded.sample(obs, noise(1)), vla.sample(obs, noise(1)))


@torch.no_grad()
def test_told_replaces_the_instruction() -> None:
    vla, obs = policy(), observation("open the drawer")
    told = InstructedPolicy(vla, "close the drawer").sample(obs, noise(1))
    assert torch.equal(told, vla.sample(observation("close the drawer"), noise(1)))
    with pytest.raises(ConfigError, match="control"):
        InstructedPolicy(vla, "close\tit")
    with pytest.raises(ConfigError, match="reads no instruction"):
        InstructedPolicy(flow_policy(), "close the drawer")


@pytest.mark.parametrize("left_out", ["state", "image.top", INSTRUCTION])
def test_a_contract_without_pictures_words_or_state_is_refused(left_out: str) -> None:
    kept = {key: array for key, array in SEEING.items() if key != left_out and "wrist" not in key}
    states = {key: array.shape for key, array in kept.items() if key == "state"}
    with pytest.raises(ConfigError, match="without"):
        VlaPolicy(env(kept), Normalizer(states), VlaConfig(), TP, 2)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="divisible"):
        policy(width=30)
    with pytest.raises(ConfigError, match="execute"):
        VlaPolicy(env(SEEING), Normalizer({"state": (3,)}), VlaConfig(), TP, TP + 1)
