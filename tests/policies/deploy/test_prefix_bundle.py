"""Bundles of vision-language-action policies: two graphs that equal torch, and a prefix that is kept."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hardware.loop.inference import InferenceProcess
from policies.base.noise import EpisodeNoise
from policies.deploy import kept_prefix
from policies.deploy.bundle import Bundle, load_bundle
from policies.deploy.bundle_writer import write_bundle
from policies.deploy.kept_prefix import KeptPrefix, times_text
from policies.deploy.runner import OnnxPolicy, bundle_noise
from policies.executor import ChunkExecutor
from policies.training.joint import joint_policy
from policies.tuned.residual import ResidualPolicy
from policies.vla.config import VlaConfig
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.normalizer import Normalizer
from robo_rl.eval.rollout import eval_seeds, evaluate
from robo_rl.nets.actor import ActorConfig, make_actor
from tests.policies.small import ENV, flow_policy
from tests.policies.small_vla import CAMERAS, SPEC, TA, TP, WORDS, drawn, seen, sides_env, small_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

OBS = ("right", "go to the left side", "right")


def corrected() -> ResidualPolicy:
    """A step-wise residual on a single-step head."""
    base = small_vla(steps=1)
    torch.manual_seed(1)
    actor = make_actor(ActorConfig("deterministic", base.features(seen("right")).shape[1] + 2, 2, (8,)))
    torch.nn.init.normal_(list(actor.parameters())[-1], std=2.0)
    return ResidualPolicy(base, actor, ResidualMap(2, 0.3)).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundles") / "sides"
    words = "go to the left side"
    return write_bundle(
        folder, small_vla(), SPEC, name="sides", noise="gaussian", training={}, instruction=words
    )


def physical(policy: Any, obs: Obs, noise: torch.Tensor) -> torch.Tensor:
    return policy.action_spec.denormalize(policy.sample(obs, noise))  # type: ignore[no-any-return]


@pytest.mark.slow
def test_two_graphs_equal_torch_on_the_entire_chunk(bundle: Bundle) -> None:
    """Promise 4, in batches of other sizes and with words of other lengths than at the export."""
    onnx, torch_policy = OnnxPolicy(bundle, "cpu"), small_vla()
    for rows in (1, 3, 8):
        obs, noise = seen(*(OBS * 3)[:rows], seed=rows), drawn(rows, seed=rows)
        torch.testing.assert_close(
            onnx.sample(obs, noise), torch_policy.sample(obs, noise), atol=1e-5, rtol=0
        )
    assert bundle.manifest["graphs"][0]["parity"] <= 1e-5
    assert bundle.manifest["prefix"] == {
        "file": "prefix.onnx",
        "inputs": [*CAMERAS, INSTRUCTION],
        "outputs": ["keys", "values", "mask", "pooled"],
        "cameras": ["top", "wrist"],
        "rate_hz": SPEC.control_hz / TA,
        "instruction": "go to the left side",
    }
    assert bundle.instruction == "go to the left side"


@pytest.mark.slow
def test_points_of_spatial_prompting_are_kept_with_the_prefix(tmp_path: Path) -> None:
    """Promise 4 for a policy that says where to act: the head reads the points of the prefix graph."""
    policy = small_vla(spatial=1.0)
    made = write_bundle(
        tmp_path / "spatial", policy, SPEC, name="sides", noise="gaussian", training={}, instruction=OBS[1]
    )
    obs, noise = seen(*OBS), drawn(3)
    found = OnnxPolicy(made, "cpu").sample(obs, noise)
    torch.testing.assert_close(found, policy.sample(obs, noise), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_robot_of_a_joint_network_is_exported_alone(tmp_path: Path) -> None:
    """Promise 4, with points, and words in the convolutions. The robot has one camera, another two."""
    one = replace(SPEC, obs={key: array for key, array in SPEC.obs.items() if key != CAMERAS[1]})
    torch.manual_seed(0)
    config = VlaConfig(width=32, layers=2, heads=4, kv_heads=2, spatial=1.0, film=True)
    each = [(spec, Normalizer({"state": (3,)})) for spec in (SPEC, one)]
    policy = joint_policy(each, config, TP, TA, WORDS).policies[1].eval().requires_grad_(False)
    for parameter in policy.net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    made = write_bundle(
        tmp_path / "joint",
        policy,
        policy.env,
        name="sides",
        noise="gaussian",
        training={},
        instruction=OBS[1],
    )
    obs, noise = {key: value for key, value in seen(*OBS).items() if key in policy.env.obs}, drawn(3)
    found = OnnxPolicy(made, "cpu").sample(obs, noise)
    torch.testing.assert_close(found, policy.sample(obs, noise), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_prefix_runs_when_pictures_or_words_change(bundle: Bundle) -> None:
    """The head reads each new state, with the prefix of the newest pictures."""
    onnx, torch_policy = OnnxPolicy(bundle, "cpu"), small_vla()
    assert onnx.prefix is not None
    obs, runs = seen("right"), []
    for change in ({}, {"state": obs["state"] + 0.1}, {INSTRUCTION: seen("left")[INSTRUCTION]},
                   {CAMERAS[0]: 255 - obs[CAMERAS[0]]}, {}):  # fmt: skip
        obs = obs | change
        torch.testing.assert_close(
            onnx.sample(obs, drawn(1)), torch_policy.sample(obs, drawn(1)), atol=1e-5, rtol=0
        )
        runs.append(onnx.prefix.took.count)
    assert runs == [1, 1, 2, 3, 3]
    assert onnx.head_took.count == 5
    with pytest.raises(ConfigError, match=r"prefix\.onnx needs instruction"):
        onnx.sample({key: value for key, value in obs.items() if key != INSTRUCTION}, drawn(1))


@pytest.mark.slow
def test_the_executor_drives_both_alike(bundle: Bundle) -> None:
    results = []
    for policy in (OnnxPolicy(bundle, "cpu"), small_vla()):
        with closing(sides_env()) as env:
            noise = EpisodeNoise((TP, 2))
            results.append(evaluate(env, policy, ChunkExecutor, noise, eval_seeds(0, 6)))
    assert results[0].length == results[1].length
    assert results[0].success == results[1].success


@pytest.mark.slow
def test_the_inference_process_of_a_robot_answers_alike(bundle: Bundle) -> None:
    """Pictures and words pass through shared memory; the second request has the same ones."""
    noise, obs = bundle_noise(bundle), seen("go to the left side")
    noise.reset([0], [0])
    process = InferenceProcess(bundle, "cpu")
    try:
        for decision in (0, 1):
            obs["state"] += 0.1
            chunk = answer(process, {key: value[0].numpy() for key, value in obs.items()}, decision)
            expected = physical(small_vla(), obs, noise.draw([0], [decision]))[0]
            torch.testing.assert_close(torch.from_numpy(chunk), expected, atol=2e-5, rtol=0)  # of 2 m
    finally:
        process.close()


def answer(process: InferenceProcess, stacked: dict[str, Any], decision: int) -> Any:
    """The chunk, once the child has loaded the bundle."""
    deadline_s = time.monotonic() + 240.0
    asked, found = False, None
    while found is None and time.monotonic() < deadline_s:
        found = process.poll()
        assert not process.fault, process.fault
        asked = asked or process.request(stacked, decision)
        time.sleep(0.01)
    assert found is not None, "no answer within four minutes"
    return found[0]


@pytest.mark.slow
def test_corrections_read_the_kept_prefix(tmp_path: Path) -> None:
    """A step-wise residual has a third graph, which needs no second run of the prefix."""
    policy = corrected()
    made = write_bundle(tmp_path / "bundle", policy, SPEC, name="corrected", noise="zero", training={})
    assert [graph["file"] for graph in made.manifest["graphs"]] == ["policy.onnx", "refine.onnx"]
    assert made.manifest["prefix"]["rate_hz"] == SPEC.control_hz
    onnx, obs = OnnxPolicy(made, "cpu"), seen(*OBS)
    assert onnx.prefix is not None
    chunk = onnx.sample(obs, drawn(3))
    torch.testing.assert_close(chunk, policy.sample(obs, drawn(3)), atol=1e-5, rtol=0)
    refined = onnx.refine(obs, chunk[:, 0])
    torch.testing.assert_close(refined, policy.refine(obs, chunk[:, 0]), atol=1e-5, rtol=0)
    assert (refined - chunk[:, 0]).abs().max() > 1e-2
    assert onnx.prefix.took.count == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"), [("file", "../prefix.onnx"), ("inputs", ["image.moon"]), ("rate_hz", 0.0),
                       ("instruction", "a\tb"), ("instruction", ""), ("outputs", 3), ("cameras", None)],
)  # fmt: skip
def test_a_manifest_with_another_prefix_is_refused(
    bundle: Bundle, tmp_path: Path, key: str, value: Any
) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle.folder, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["prefix"][key] = value
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="Export"):
        load_bundle(copy)


def test_words_for_a_policy_that_reads_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads no instruction"):
        write_bundle(
            tmp_path / "b", flow_policy(), ENV, name="b", noise="zero", training={}, instruction="go"
        )
    with pytest.raises(ConfigError, match="is empty"):
        write_bundle(tmp_path / "b", small_vla(), SPEC, name="b", noise="zero", training={}, instruction=" ")
    with pytest.raises(ConfigError, match="knows no word of the instruction 'zzz'"):
        write_bundle(
            tmp_path / "b", small_vla(), SPEC, name="b", noise="zero", training={}, instruction="zzz"
        )


class CountingGraph:
    """Stands for the prefix graph: pooled = the picture's sum."""

    def __init__(self, *_: object) -> None:
        self.name, self.shapes, self.runs = "prefix.onnx", {"image.top": (1, 2), INSTRUCTION: (1, 3)}, 0

    def run_all(self, inputs: Obs) -> Obs:
        self.runs += 1
        return {"pooled": inputs["image.top"].float().sum(dim=(1, 2)) + self.runs}


def test_what_is_kept_belongs_to_the_newest_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also if the caller writes the next picture into the same array, or asks for another number of rows."""
    monkeypatch.setattr(kept_prefix, "OnnxGraph", CountingGraph)
    kept = KeptPrefix(tmp_path)
    obs = {"image.top": torch.ones(1, 1, 2, dtype=torch.uint8), INSTRUCTION: torch.ones(1, 1, 3)}
    assert float(kept(obs)["pooled"]) == float(kept(obs | {"state": torch.ones(1)})["pooled"]) == 3.0
    obs["image.top"][:] = 2
    assert float(kept(obs)["pooled"]) == 6.0
    two = {key: value.repeat(2, 1, 1) for key, value in obs.items()}
    assert kept(two)["pooled"].tolist() == [7.0, 7.0]
    assert times_text("prefix", kept.took).startswith("prefix: 3 runs, ")


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundles") / "remembering"
    return write_bundle(folder, small_vla(memory=2, steps=1), SPEC, name="m", noise="zero", training={})


@pytest.mark.slow
def test_a_bundle_remembers_as_its_policy_does(remembering: Bundle) -> None:
    """Graphs have no state: the executor holds the memory, and four decisions are those of torch."""
    policy, bundle = small_vla(memory=2, steps=1), remembering
    assert bundle.memory == policy.memory_shape
    executors = [ChunkExecutor(each, 3) for each in (policy, OnnxPolicy(bundle, "cpu"))]
    for seed in range(4):
        obs = {key: value[:, 0] for key, value in seen(*OBS, seed=seed).items()}
        for executor in executors:
            executor.reset(obs) if seed == 0 else executor.observe(obs)
        chunks = [each.plan(each.lanes, drawn(3, seed=seed)) for each in executors]
        torch.testing.assert_close(chunks[1], chunks[0], atol=1e-5, rtol=0)


@pytest.mark.slow
def test_inference_on_a_robot_remembers_until_the_next_episode(remembering: Bundle) -> None:
    """Decision 0 starts an episode. The second chunk of an episode differs from its first for the same
    observation and noise, and both come again after a reset.
    """
    inference = InferenceProcess(remembering, "cpu")
    stacked = {key: value[0].numpy() for key, value in seen("right").items()}
    try:
        chunks = [answer(inference, stacked, decision) for decision in (0, 1, 0, 1)]
    finally:
        inference.close()
    assert (chunks[2] == chunks[0]).all()
    assert (chunks[3] == chunks[1]).all()
    assert abs(chunks[1] - chunks[0]).max() > 1e-4
