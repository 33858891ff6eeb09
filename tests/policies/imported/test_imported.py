"""Import of LeRobot's diffusion policy: LeRobot's own numbers, and refusals that name what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from policies.checkpoint import load_policy, save_policy
from policies.imported.checkpoint import read_checkpoint
from policies.imported.contract import imported_env, observation_keys
from policies.imported.diffusion import ImportedDiffusionPolicy, import_diffusion, native_fault
from robo_rl.apps.cli.main import main
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.spec import ActionSpec
from tests.policies.imported.lerobot_folder import REFERENCE, checkpoint, state_file
from tests.policies.imported.lerobot_reference import ACTION, ROWS, numbers, observations

PAST = 1  # of two observation steps


def imported(folder: Path, **changes: Any) -> ImportedDiffusionPolicy:
    read = read_checkpoint(folder)
    keys = observation_keys(read)
    env = imported_env(read, keys, None, 10.0)
    return import_diffusion(read, replace(env, **changes), keys)


def chunk_of(policy: ChunkPolicy) -> torch.Tensor:
    """Chunk in the units of the action, of the reference's observations and noise."""
    obs = {key: torch.from_numpy(value) for key, value in observations(2, image=False).items()}
    noise = torch.from_numpy(numbers("noise", (ROWS, policy.chunk, ACTION), 1.5))
    low, high = torch.tensor(policy.action_spec.low), torch.tensor(policy.action_spec.high)
    return low + (policy.sample(obs, noise) + 1.0) / 2.0 * (high - low)


def test_chunk_equals_the_one_of_lerobot(tmp_path: Path) -> None:
    """LeRobot 0.4.4 computed the numbers for the same weights, observations and noise; its chunk begins at
    the oldest observation, ours at the newest. What follows is the rest, with the last action repeated.
    """
    policy = imported(checkpoint(tmp_path / "there"))
    assert isinstance(policy, ChunkPolicy)
    assert (policy.obs_steps, policy.chunk, policy.execute) == (2, 8, 4)
    chunk = chunk_of(policy)
    np.testing.assert_allclose(chunk[:, :4], np.array(REFERENCE["chunk"]), atol=1e-4)
    assert float(np.ptp(np.array(REFERENCE["chunk"]))) > 1.0
    assert chunk[:, -1].equal(chunk[:, -1 - PAST])


def test_imported_policy_survives_a_policy_folder(tmp_path: Path) -> None:
    policy = imported(checkpoint(tmp_path / "there"))
    save_policy(tmp_path / "ours", policy)
    assert chunk_of(load_policy(tmp_path / "ours")).equal(chunk_of(policy))


def test_actions_are_mapped_to_the_limits_of_an_environment(tmp_path: Path) -> None:
    """The same motion in other limits: the numbers in [-1, 1] differ, those in units do not."""
    folder = checkpoint(tmp_path / "there")
    wide = imported(folder, action=ActionSpec((-10.0, -20.0), (30.0, 40.0)))
    torch.testing.assert_close(chunk_of(wide), chunk_of(imported(folder)), atol=1e-4, rtol=0.0)


def edit_json(file: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        data = json.loads((folder / file).read_text())
        change(data)
        (folder / file).write_text(json.dumps(data))

    return edit


def edit_tensors(file: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / file)
        change(tensors)
        save_file(tensors, folder / file)

    return edit


PRE_JSON = "policy_preprocessor.json"
PRE, POST = state_file("policy_preprocessor"), state_file("policy_postprocessor")
Tensors = dict[str, torch.Tensor]


def renamed(tensors: Tensors) -> None:
    tensors["observation.joints.min"] = tensors.pop("observation.state.min")


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no preprocessor": (lambda f: (f / "policy_preprocessor.json").unlink(), "would run un-normalised"),
    "no postprocessor": (lambda f: (f / "policy_postprocessor.json").unlink(), "would run un-normalised"),
    "no statistics": (lambda f: (f / PRE).unlink(), "cannot be read"),
    "statistics cut": (lambda f: (f / PRE).write_bytes((f / PRE).read_bytes()[:50]), "cannot be read"),
    "missing key": (
        edit_tensors(PRE, lambda t: t.pop("observation.state.max")),
        "no statistic 'observation.state.max'",
    ),
    "renamed key": (edit_tensors(PRE, renamed), "it has observation.joints instead"),
    "foreign key": (
        edit_tensors(PRE, lambda t: t.update({"observation.images.top.mean": torch.zeros(3)})),
        "statistics of observation.images.top, which are not its features",
    ),
    "action missing": (
        edit_tensors(POST, lambda t: t.pop("action.min")),
        "'action.min' of policy_postprocessor",
    ),
    "action differs": (edit_tensors(POST, lambda t: t["action.min"].add_(1.0)), "is missing or differs"),
    "wrong size": (
        edit_tensors(PRE, lambda t: t.update({"observation.state.min": torch.zeros(4)})),
        "expected finite numbers of shape (3,)",
    ),
    "not finite": (
        edit_tensors(PRE, lambda t: t["observation.state.min"].fill_(torch.nan)),
        "expected finite",
    ),
    "unknown step": (
        edit_json(PRE_JSON, lambda d: d["steps"].append({"registry_name": "delta_actions"})),
        "the step 'delta_actions', whose effect is not known",
    ),
    "no normaliser": (edit_json(PRE_JSON, lambda d: d["steps"].pop()), "holds 0 normalisers"),
    "unknown mode": (
        edit_json(PRE_JSON, lambda d: d["steps"][-1]["config"]["norm_map"].update(STATE="LOG")),
        "has the normalisation",
    ),
    "file of another folder": (
        edit_json(PRE_JSON, lambda d: d["steps"][-1].update(state_file="../x.safetensors")),
        "names no file with the statistics",
    ),
    "config cut": (lambda f: (f / "config.json").write_text('{"type":'), "is not valid JSON"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "expected an object"),
    "no features": (edit_json("config.json", lambda d: d.pop("input_features")), "holds no input_features"),
    "huge feature": (
        edit_json("config.json", lambda d: d["input_features"]["observation.state"].update(shape=[10**9])),
        "the shape [1000000000]",
    ),
    "other horizon": (edit_json("config.json", lambda d: d.update(horizon="8")), "has horizon = '8'"),
    "too many steps": (
        edit_json("config.json", lambda d: d.update(num_inference_steps=101)),
        "at most 100 exist",
    ),
    "tensor missing": (
        edit_tensors("model.safetensors", lambda t: t.pop("diffusion.unet.final_conv.1.bias")),
        "lacks the tensors",
    ),
    "tensor too many": (
        edit_tensors("model.safetensors", lambda t: t.update({"diffusion.rgb_encoder.x": torch.zeros(1)})),
        "holds unexpected tensors",
    ),
    "other widths": (
        edit_json("config.json", lambda d: d.update(down_dims=[16, 64])),
        "tensors of other shapes",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "words"), FAULTS.values(), ids=FAULTS)
def test_damaged_checkpoint_is_refused(tmp_path: Path, damage: Callable[[Path], object], words: str) -> None:
    """Missing and foreign statistics above all: LeRobot would run the policy un-normalised."""
    folder = checkpoint(tmp_path / "there")
    damage(folder)
    with pytest.raises(CheckpointError) as caught:
        imported(folder)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "act"}, "it is a policy of type 'act'"),
        ({"use_film_scale_modulation": False}, "use_film_scale_modulation is False"),
        ({"n_groups": 4}, "n_groups is 4"),
        ({"clip_sample": False}, "clip_sample is False"),
    ],
)
def test_other_layouts_are_not_ours(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = checkpoint(tmp_path / "there")
    edit_json("config.json", lambda data: data.update(changes))(folder)
    assert words in native_fault(read_checkpoint(folder))


def test_sampler_with_noise_needs_a_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DDPM draws noise at every step: refused, unless DDIM's number of steps is given."""
    folder = checkpoint(tmp_path / "there")
    edit_json("config.json", lambda data: data.update(noise_scheduler_type="DDPM", num_inference_steps=None))(
        folder
    )
    with pytest.raises(ConfigError, match="samples by DDPM, which draws noise at every step"):
        imported(folder)
    words = [f"source={folder}", "rate_hz=10"]
    assert main(["import-policy", *words, f"out={tmp_path / 'ours'}", "steps=7"]) == 0
    np.testing.assert_allclose(
        chunk_of(load_policy(tmp_path / "ours"))[:, :4], np.array(REFERENCE["chunk"]), atol=1e-4
    )
    said = capsys.readouterr().out
    assert "state <- observation.state: float32 (3,), normalised by MIN_MAX" in said
    assert "environment_state <- observation.environment_state: float32 (4,), normalised by IDENTITY" in said


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(tmp_path / "there")
    for words, sentence in (
        (["rate_hz=10", f"out={folder}"], "exists. Choose another folder"),
        ([f"out={tmp_path / 'a'}"], "does not hold its rate"),
        ([f"out={tmp_path / 'a'}", "rate_hz=10", "keys=[x:y]"], "keys=x:y cannot be used"),
        ([f"out={tmp_path / 'a'}", "env=arm6/reach"], "arm6/reach offers float32 (15,) as 'state'"),
    ):
        assert main(["import-policy", f"source={folder}", *words]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1
    assert main(["import-policy", f"source={tmp_path}", f"out={tmp_path / 'a'}", "rate_hz=1"]) == 2
    assert "not a checkpoint of LeRobot" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_imported_policy_is_exported(tmp_path: Path) -> None:
    """The bundle's graph equals torch, and its manifest holds LeRobot's statistics."""
    from policies.deploy.bundle import load_bundle

    folder = checkpoint(tmp_path / "there")
    edit_json("config.json", lambda d: d.update(num_inference_steps=2))(folder)  # each is a part of the graph
    save_policy(tmp_path / "ours", imported(folder))
    words = [f"policy={tmp_path / 'ours'}", f"out={tmp_path / 'bundle'}", "noise=gaussian"]
    assert main(["export", *words]) == 0
    manifest = load_bundle(tmp_path / "bundle").manifest
    low = load_file(folder / PRE)["observation.state.min"]
    high = load_file(folder / PRE)["observation.state.max"]
    np.testing.assert_allclose(manifest["normalizer"]["state"]["center"], (low + high) / 2, atol=1e-6)
