"""Policy folders: weights are restored bit for bit; every kind of damage gives one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from policies.checkpoint import check_compatible, load_policy, pack, read_policy_json, save_policy
from policies.registry import SavedPolicy
from robo_rl.core.errors import CheckpointError, UnknownNameError
from robo_rl.core.spec import ActionSpec, ArraySpec
from tests.policies.worlds import CAMERA_ENV, ENV, NETS, PROCESSES, observations, policy_of


@pytest.mark.parametrize(("process", "net"), [*[(p, "mlp") for p in PROCESSES], *[("flow", n) for n in NETS]])
def test_a_loaded_policy_acts_the_same_bit_for_bit(process: str, net: str, tmp_path: Path) -> None:
    """Weights, tables and statistics are saved; the loaded policy is frozen."""
    env = CAMERA_ENV if net == "unet1d" else ENV
    policy, obs, noise = policy_of(process, net, env).eval(), observations(env, 3, 2), torch.randn(3, 8, 2)
    save_policy(tmp_path / "policy", policy, {"data": "20 demonstrations"})
    loaded = load_policy(tmp_path / "policy")
    assert isinstance(loaded, SavedPolicy)
    assert loaded.sample(obs, noise).equal(policy.sample(obs, noise))
    assert loaded.sample(obs, noise).requires_grad is False
    assert sorted(p.name for p in (tmp_path / "policy").iterdir()) == ["policy.json", "weights.safetensors"]
    described = read_policy_json(tmp_path / "policy")
    assert described["kind"] == "generative"
    assert described["train"] == {"data": "20 demonstrations"}
    assert described["env"] == json.loads(json.dumps(env.to_json()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_policy(tmp_path, policy_of())
    return tmp_path


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _rewrite(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Other weights with a matching checksum."""
    import zlib

    data = pack(tensors)
    (folder / "weights.safetensors").write_bytes(data)
    _edit(folder, weights_crc32=zlib.crc32(data))


def _refused(folder: Path, match: str) -> None:
    with pytest.raises(CheckpointError, match=match):
        load_policy(folder)


def test_absent_and_broken_files(folder: Path) -> None:
    """An empty folder, truncated JSON, truncated weights, weights of another save."""
    _refused(folder / "nothing", "is not a policy folder: .* does not exist")
    weights = folder / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    _refused(folder, "is not a safetensors file")
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    weights.write_bytes(bytes(flipped))
    _refused(folder, "does not belong to the policy.json")
    weights.unlink()
    _refused(folder, "cannot be read")
    (folder / "policy.json").write_text('{"format": 1,')
    _refused(folder, "not valid JSON")


def test_other_format_and_edited_json(folder: Path) -> None:
    """Written by a later version, or by hand."""
    _edit(folder, format=2)
    _refused(folder, "has format 2, expected 1")
    _edit(folder, format=1, kind="generativ")
    with pytest.raises(UnknownNameError, match="Did you mean 'generative'"):
        load_policy(folder)
    config = json.loads((folder / "policy.json").read_text())["config"]
    _edit(folder, kind="generative", config=config | {"net": {"name": "mlp", "wdth": 1}})
    _refused(folder, "wdth")
    _edit(folder, config={k: v for k, v in config.items() if k != "chunk"})
    _refused(folder, "'chunk' is missing")
    (folder / "policy.json").write_text('{"format": 1}')
    _refused(folder, r"lacks \['config', 'env', 'kind', 'weights_crc32'\]")


def test_tensors_that_do_not_fit(folder: Path) -> None:
    """Missing, unexpected and mis-shaped tensors are named."""
    state = policy_of().state_dict()
    name = "net.net.0.bias"
    _rewrite(folder, {k: v for k, v in state.items() if k != name})
    _refused(folder, rf"lacks the tensors {name}\.")
    _rewrite(folder, state | {"net.extra": torch.zeros(1)})
    _refused(folder, r"unexpected tensors net\.extra")
    _rewrite(folder, state | {name: torch.zeros(3)})
    _refused(folder, rf"other shapes: {name} \(3,\) instead of \(32,\)")
    _rewrite(folder, {})
    _refused(folder, "and 7 more")


def test_mismatched_environment_is_refused() -> None:
    """An environment with other observations or another action space is refused, and no other."""
    policy = policy_of()
    check_compatible(policy, replace(ENV, name="fake/other", obs=ENV.obs | {"more": ArraySpec((9,))}))
    cases = [
        (
            replace(ENV, obs={"state": ENV.obs["state"]}),
            r"needs observation 'goal', but fake/reach offers \['state'\]",
        ),
        (replace(ENV, obs=ENV.obs | {"goal": ArraySpec((7,))}), r"'goal' of fake/reach is float32 \(7,\)"),
        (replace(ENV, obs=ENV.obs | {"goal": ArraySpec((2,), "uint8")}), r"is uint8 \(2,\)"),
        (
            replace(ENV, action=ActionSpec((-1.0,), (1.0,))),
            "dimension 1, but .* trained in fake/reach for dimension 2",
        ),
        (
            replace(ENV, action=ActionSpec((-1.0, 0.0), (2.0, 10.0))),
            "The same action would be another motion",
        ),
    ]
    for env, message in cases:
        with pytest.raises(CheckpointError, match=message):
            check_compatible(policy, env)


def test_floats_of_any_precision_fit() -> None:
    """Gymnasium's environments mostly give float64, recordings float32."""
    policy = policy_of()
    for key in ENV.obs:
        check_compatible(policy, replace(ENV, obs=ENV.obs | {key: replace(ENV.obs[key], dtype="float64")}))


def test_another_unit_or_order_of_joints_is_refused() -> None:
    """The same numbers would move other joints, or be radians read as degrees."""
    named = replace(ENV, action=replace(ENV.action, unit="rad: a, b"))
    policy = policy_of(env=named)
    check_compatible(policy, replace(named, action=replace(named.action, unit="")))
    with pytest.raises(CheckpointError, match=r"'rad: b, a', but .* on 'rad: a, b'.* another motion"):
        check_compatible(policy, replace(named, action=replace(named.action, unit="rad: b, a")))
    goal = replace(ENV.obs["goal"], unit="m")
    policy = policy_of(env=replace(ENV, obs=ENV.obs | {"goal": goal}))
    with pytest.raises(CheckpointError, match=r"'goal' of fake/reach is in 'mm', but .* on 'm'"):
        check_compatible(policy, replace(ENV, obs=ENV.obs | {"goal": replace(goal, unit="mm")}))


def test_the_rate_of_a_dataset_must_be_that_of_the_policy() -> None:
    """Actions of 10 Hz are no actions of 50 Hz. In an environment, another rate may be measured."""
    faster = replace(ENV, control_hz=5.0 * ENV.control_hz)
    check_compatible(policy_of(), faster)
    with pytest.raises(CheckpointError, match=r"data/demos was recorded at \d+ Hz, but .* in fake/reach at"):
        check_compatible(policy_of(), faster, "data/demos")


def test_mismatched_dataset_is_named() -> None:
    """The message names the folder of the demonstrations, not only their task."""
    found = replace(ENV, obs={"state": ENV.obs["state"]})
    with pytest.raises(CheckpointError, match="the dataset data/demos of fake/reach offers"):
        check_compatible(policy_of(), found, "data/demos")
