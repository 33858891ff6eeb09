from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import policies.deploy.bundle_writer as bundle_module
from policies.checkpoint import load_policy
from policies.deploy.bundle import OWN_SUM, Bundle, check_env, load_bundle, read_bundle, sha256_of_manifest
from policies.deploy.bundle_writer import write_bundle
from policies.deploy.runner import OnnxPolicy
from robo_rl.core.errors import CheckpointError, ConfigError, DiskFullError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from tests.policies.deploy.die_in_swap import NEW
from tests.policies.small import ENV, flow_policy

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(button_bundle: Bundle, tmp_path: Path) -> Path:
    """Copy of a bundle, to be damaged."""
    copy = tmp_path / "button"
    copy.mkdir()
    for path in button_bundle.folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest and its checksum."""
    data = json.loads((folder / "manifest.json").read_text())
    change(data)
    (folder / "manifest.json").write_text(json.dumps(data | {OWN_SUM: sha256_of_manifest(data)}))


def test_the_manifest_is_the_contract(button_bundle: Bundle) -> None:
    """The manifest holds all that a user of the folder needs, in numbers with units."""
    data = button_bundle.manifest
    assert {path.name for path in button_bundle.folder.iterdir()} == {
        "manifest.json", "policy.json", "weights.safetensors", "policy.onnx",
    }  # fmt: skip
    assert data["env"]["obs"] == {"state": {"shape": [2], "dtype": "float32", "unit": "SI"}}
    assert data["env"]["action"] == {"low": [-4.0], "high": [4.0], "unit": "N"}
    assert data["rates_hz"] == {"state": 50.0}
    assert data["horizons"] == {"obs_steps": 2, "chunk": 4, "execute": 2}
    assert data["noise"] == {"mode": "gaussian", "shape": [4, 1]}
    assert len(data["normalizer"]["state"]["center"]) == 2
    assert data["measured"] == {"k": 97, "n": 100, "success": 0.97, "wilson95": [0.92, 0.99]}
    assert data["training"]["data"] == "20 demonstrations"
    assert data["graphs"][0]["parity"] <= 1e-5
    assert set(data["files"]) == {"policy.json", "weights.safetensors", "policy.onnx"}
    assert "torch" in data["versions"]
    assert data["commit"]
    assert (button_bundle.obs_steps, button_bundle.chunk, button_bundle.execute, button_bundle.noise) == (
        2,
        4,
        2,
        "gaussian",
    )
    assert button_bundle.graph(1) is None


def test_a_bundle_is_also_a_policy_folder(button_bundle: Bundle) -> None:
    """Weights are part of the bundle, so a robot's policy can be trained further."""
    policy, obs, noise = (
        load_policy(button_bundle.folder),
        {"state": torch.rand(3, 2, 2)},
        torch.randn(3, 4, 1),
    )
    assert torch.equal(policy.sample(obs, noise), flow_policy().sample(obs, noise))


@pytest.mark.parametrize("name", ["policy.onnx", "weights.safetensors", "policy.json", "manifest.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    """An incomplete copy."""
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load_bundle(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["horizons"].update(execute=1),
        lambda manifest: manifest["normalizer"]["state"]["center"].__setitem__(0, 9.0),
        lambda manifest: manifest["measured"].update(k=99),
    ],
)
def test_a_manifest_edited_by_hand_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """Such numbers fit the contract and would move the arm wrongly."""
    data = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(data, indent=4, sort_keys=True))
    load_bundle(folder)  # order and spaces are free
    change(data)
    (folder / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="not the one that was exported"):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["policy.onnx", "weights.safetensors", "policy.json"])
def test_one_flipped_bit_is_found(folder: Path, name: str) -> None:
    """A damaged weight would move the arm wrongly, and nothing else would detect it."""
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(CheckpointError, match="sha256"):
        load_bundle(folder)


def test_reading_alone_finds_a_file_that_was_cut_short(folder: Path) -> None:
    """At once, however large it is; a flipped bit is found by loading."""
    weights = folder / "weights.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert read_bundle(folder).name == "button"
    weights.write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match=f"{len(data) - 1} bytes, the manifest says {len(data)}"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.update(format=2), "format 2, this version reads 1"),
        (lambda m: m.pop("horizons"), "lacks horizons"),
        (lambda m: m["files"].pop("policy.onnx"), "no checksum for policy.onnx"),
        (lambda m: m["files"].update({"../secret": {"sha256": "0"}}), "not a file of the bundle"),
        (lambda m: m["noise"].update(mode="loud"), "noise 'loud'"),
        (lambda m: m["env"].pop("action"), "cannot be parsed"),
        (lambda m: m["env"]["action"].update(low=[5.0]), "cannot be parsed"),
    ],
)
def test_a_manifest_that_breaks_the_contract_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    """Each fault has its own reason, before anything is loaded."""
    edit(folder, change)
    with pytest.raises(CheckpointError, match=reason):
        load_bundle(folder)


def test_a_manifest_of_another_kind_is_refused(folder: Path) -> None:
    """A list, or a truncated file."""
    (folder / "manifest.json").write_text("[]")
    with pytest.raises(CheckpointError, match="format 'list'"):
        load_bundle(folder)
    (folder / "manifest.json").write_text('{"format": 1')
    with pytest.raises(CheckpointError, match="not valid JSON"):
        load_bundle(folder)


def changed(**changes: Any) -> EnvSpec:
    return dataclasses.replace(ENV, name="other/robot", **changes)


@pytest.mark.parametrize(
    ("env", "reasons"),
    [
        (changed(obs={"joints": ArraySpec((2,))}), ["'state' is missing", "it offers joints"]),
        (
            changed(obs={"state": ArraySpec((3,), unit="SI")}),
            [r"'state' is float32 \(3,\), expected float32 \(2,\)"],
        ),
        (changed(obs={"state": ArraySpec((2,), unit="mm")}), ["'state' is in 'mm', expected 'SI'"]),
        (changed(action=ActionSpec((-1.0,), (1.0,), "N")), ["actions are limited to"]),
        (changed(action=ActionSpec((-4.0,), (4.0,), "rad")), ["actions are in 'rad', expected 'N'"]),
        (changed(control_hz=20.0, obs={}), ["20 Hz, expected 50 Hz", "'state' is missing"]),
    ],
)
def test_all_mismatches_are_listed(button_bundle: Bundle, env: EnvSpec, reasons: list[str]) -> None:
    """Millimetres instead of metres, or half the rate, would move an arm wrongly without an error."""
    for reason in reasons:
        with pytest.raises(CheckpointError, match=reason):
            check_env(button_bundle, env)


def test_a_bundle_accepts_floats_of_any_precision(button_bundle: Bundle) -> None:
    """The same numbers give the same chunk."""
    check_env(button_bundle, changed(obs={"state": dataclasses.replace(ENV.obs["state"], dtype="float64")}))
    policy, noise = OnnxPolicy(button_bundle, "cpu"), torch.zeros(1, button_bundle.chunk, 1)
    obs = {"state": torch.rand(1, button_bundle.obs_steps, 2)}
    assert policy.sample({"state": obs["state"].double()}, noise).equal(policy.sample(obs, noise))


def test_more_observations_than_needed_are_fine(button_bundle: Bundle) -> None:
    """An arena may offer additional cameras."""
    check_env(button_bundle, changed(obs={**ENV.obs, "image.top": ArraySpec((4, 4, 3), "uint8")}))


def test_a_folder_that_is_not_a_bundle_is_never_replaced(tmp_path: Path) -> None:
    """A mistyped path must not delete other data."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not a bundle"):
        write_bundle(tmp_path, flow_policy(), ENV, name="x", noise="zero", training={})
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_failed_export_keeps_the_old_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk during the export: the old bundle stays, and no incomplete folder remains."""

    def full(*_: object) -> None:
        raise DiskFullError("The disk is full.")

    monkeypatch.setattr(bundle_module, "export_policy", full)
    with pytest.raises(DiskFullError):
        write_bundle(folder, flow_policy(), ENV, name="new", noise="zero", training={})
    assert load_bundle(folder).name == "button"
    assert [path.name for path in folder.parent.iterdir()] == ["button"]


def test_a_new_bundle_replaces_the_old_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting again after more training is the normal case."""
    graph = (folder / "policy.onnx").read_bytes()

    def same(policy: object, into: Path, example: object) -> list[Any]:
        (into / "policy.onnx").write_bytes(graph)
        return []

    monkeypatch.setattr(bundle_module, "export_policy", same)
    bundle = write_bundle(
        folder, flow_policy(), ENV, name="new", noise="zero", training={}, rates_hz={"state": 100}
    )
    assert (bundle.name, bundle.noise, bundle.manifest["rates_hz"]) == ("new", "zero", {"state": 100})
    assert bundle.manifest["measured"] is None
    assert [path.name for path in folder.parent.iterdir()] == ["button"]


def test_a_success_without_its_interval_is_refused(tmp_path: Path) -> None:
    """Promise 9: every success rate comes with k, n and its interval."""
    with pytest.raises(ConfigError, match="wilson95"):
        write_bundle(
            tmp_path / "x", flow_policy(), ENV, name="x", noise="zero", training={}, measured={"k": 1, "n": 2}
        )


@pytest.mark.parametrize("way", ["atomic", "plain"])
def test_a_kill_between_old_and_new_hides_neither(folder: Path, tmp_path: Path, way: str) -> None:
    """SIGKILL before and after every step of the exchange: a reader finds one bundle, and the next writer
    removes leftovers.
    """
    places = [tmp_path / "all" / str(at) / "button" for at in range(16)]
    for place in places:
        shutil.copytree(folder, place)
        shutil.copytree(folder, place.with_name(NEW))
        edit(place.with_name(NEW), lambda manifest: manifest.update(name="new"))
    command = [sys.executable, "-m", "tests.policies.deploy.die_in_swap", str(tmp_path / "all"), way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    ends = [int(line) for line in done.stdout.split()]
    assert ends[0] == -signal.SIGKILL
    assert ends[-1] == 0  # there are not as many steps
    assert {load_bundle(place).name for place in places} == {"button", "new"}
    for place in places:
        bundle_module._clear(place, "partial")  # as `write_bundle` begins
        again = place.with_name(f".button.partial.{os.getpid()}")
        shutil.copytree(folder, again)
        bundle_module._swap(again, place)
        assert load_bundle(place).name == "button"
        assert [path.name for path in place.parent.iterdir()] == ["button"]
