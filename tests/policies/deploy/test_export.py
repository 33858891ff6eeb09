from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.base.generative import GenerativePolicy
from policies.deploy.bundle import Bundle
from policies.deploy.export import SampleGraph, example_obs, export_policy, refines, trace
from policies.deploy.graph import BoundGraph, OnnxGraph, providers
from policies.tuned.best_of import BestOfPolicy
from policies.tuned.one_step import JumpHead, OneStepPolicy
from policies.tuned.residual import ResidualPolicy
from policies.tuned.single_step import SingleStepPolicy
from policies.tuned.steered import SteeredPolicy
from robo_rl.core.action_map import CandidateMap, LatentMap, ResidualMap
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.spec import ArraySpec, EnvSpec
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.guided import GuidedConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.registry import net_config_json
from robo_rl.nets.transformer import TransformerConfig
from robo_rl.nets.unet1d import Unet1dConfig
from tests.eval.fakes import NoisyPolicy
from tests.policies.small import (
    ENV,
    Small,
    SmallResidual,
    Unfaithful,
    Untraceable,
    diffusion_policy,
    flow_policy,
)


def test_graph_includes_normaliser_steps_and_limits(button_bundle: Bundle) -> None:
    """Raw state and noise in, newtons out: normaliser, both flow steps and limits are part of the graph."""
    policy, graph = flow_policy(), OnnxGraph(button_bundle.folder / "policy.onnx", "policy.onnx")
    obs, noise = (
        {"state": 2.0 + torch.rand(33, 2, 2)},
        torch.randn(33, 4, 1),
    )  # a batch never seen in the check
    expected = policy.action_spec.denormalize(policy.sample(obs, noise)).detach()
    found = graph.run({**obs, "noise": noise}, "chunk")
    torch.testing.assert_close(found, expected, atol=4e-5, rtol=0.0)  # 1e-5 of half the range of 8 N
    assert found.abs().max() <= 4.0


def test_a_graph_takes_states_of_the_contracts_type(tmp_path: Path) -> None:
    """The graph reads float32; observations of the robot's type are converted on the way in."""
    policy = flow_policy(replace(ENV, obs={"state": ArraySpec((2,), "float64")}))
    export_policy(policy, tmp_path)
    obs = {"state": torch.ones(3, 2, 2, dtype=torch.float64)}
    noise = torch.zeros(3, 4, 1)
    expected = policy.action_spec.denormalize(policy.sample(obs, noise)).detach()
    found = OnnxGraph(tmp_path / "policy.onnx", "policy.onnx").run({**obs, "noise": noise}, "chunk")
    torch.testing.assert_close(found, expected, atol=4e-5, rtol=0.0)
    bound = BoundGraph(tmp_path / "policy.onnx", "chunk")
    one = bound({"state": obs["state"][0].numpy(), "noise": noise[0].numpy()})
    np.testing.assert_allclose(one, expected[0], atol=4e-5)


def test_a_residual_gets_a_second_graph(residual_bundle: Bundle) -> None:
    """It acts every step, between two plans; images are uint8, actions in physical units."""
    assert [graph["file"] for graph in residual_bundle.manifest["graphs"]] == ["policy.onnx", "refine.onnx"]
    policy = SmallResidual()
    obs = example_obs(policy, 5)
    assert obs["image.top"].dtype == torch.uint8
    action = torch.rand(5, 2) * 2.0 - 1.0
    expected = policy.action_spec.denormalize(policy.refine(obs, action)).detach()
    physical = policy.action_spec.denormalize(action)
    found = OnnxGraph(residual_bundle.folder / "refine.onnx", "refine").run(
        {**obs, "action": physical}, "refined"
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0.0)


def test_bound_graph_equals_the_unbound_one(residual_bundle: Bundle) -> None:
    """Bit for bit, call after call, with images and with a second graph."""
    for file, output, extra in (("policy.onnx", "chunk", "noise"), ("refine.onnx", "refined", "action")):
        free, bound = (
            kind(residual_bundle.folder / file, name)
            for kind, name in ((OnnxGraph, file), (BoundGraph, output))
        )
        for seed in range(3):
            torch.manual_seed(seed)
            obs = {key: value[:1] for key, value in example_obs(SmallResidual(), 2).items()}
            given = {**obs, extra: torch.randn(1, *free.shapes[extra])}
            found = bound({key: value[0].numpy() for key, value in given.items()})
            assert found.tolist() == free.run(given, output)[0].tolist()


def test_bound_graph_refuses_wrong_shapes(button_bundle: Bundle) -> None:
    """NumPy alone would broadcast a single number to fill a row."""
    graph = BoundGraph(button_bundle.folder / "policy.onnx", "chunk")
    noise = np.zeros((4, 1), np.float32)
    with pytest.raises(
        ConfigError, match=r"policy.onnx needs 'state' of shape \(2, 2\), found only \['noise'\]"
    ):
        graph({"noise": noise})
    with pytest.raises(ConfigError, match=r"'state' of shape \(2, 2\), found shape \(1, 2\)"):
        graph({"state": np.zeros((1, 2), np.float32), "noise": noise})


def real_policies() -> dict[str, ChunkPolicy]:
    """Every kind of network, process and fine-tuned policy, in small sizes."""
    image_env = EnvSpec(
        "fake/cam", {**ENV.obs, "image.top": ArraySpec((8, 8, 3), "uint8")}, ENV.action, 8, 50.0
    )
    encoder = flow_policy(image_env, image=ImageEncoderConfig(widths=[8], features=4, keypoints=4)).encoder
    head = SingleStepPolicy(image_env, encoder, Unet1dConfig(widths=[8, 8], kernel=3, time_dim=8), 2, 4, 2)
    base = diffusion_policy(TransformerConfig(width=8, depth=1, heads=2))
    features, latent = base.encoder.dim, LatentMap(4, 1, 1.0)
    actor = make_actor(ActorConfig("gaussian", features + latent.ctx_dim, latent.dim, (8,)))
    corrector = make_actor(ActorConfig("deterministic", features + 1, 1, (8,)))
    gate = CriticEnsemble(features + 1, (8,), margin=0.5)
    tuned = ResidualPolicy(SteeredPolicy(base, actor, latent), corrector, ResidualMap(1, 0.2), gate)
    choice = CandidateMap(1, 2, 3, 0.1)
    critic = CriticEnsemble(features + choice.critic_dim, (8,))
    editor = make_actor(ActorConfig("deterministic", features + choice.critic_dim, choice.critic_dim, (8,)))
    chooser = BestOfPolicy(base, critic, choice, editor)
    one_step = OneStepPolicy(base, JumpHead(base, ready=True))
    config = replace(base.shape, net=GuidedConfig(inner=net_config_json(base.shape.net), weight=3.0))
    guided = GenerativePolicy(ENV, base.encoder.normalizer, config, base.process)
    return {"head": head, "residual": tuned, "best_of": chooser, "one_step": one_step, "guided": guided}


@pytest.mark.long
@pytest.mark.parametrize("name", ["head", "residual", "best_of", "one_step", "guided"])
def test_every_kind_of_policy_traces_with_a_free_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A length read from a shape, or a branch on it, would fix the tracer's batch (2) in the graph.

    Python traces them all, which takes less time than tracing by Dynamo.
    """
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *given, strict, **named: (
        pytest.fail("traced by Dynamo") if strict else export(*given, strict=False, **named)))  # fmt: skip
    policy = real_policies()[name]
    assert isinstance(policy, nn.Module)
    policy.eval()
    obs, noise = example_obs(policy, 9), torch.randn(9, 4, 1)
    program = trace(SampleGraph(policy), {**obs, "noise": noise}).module()
    with torch.no_grad():
        expected = policy.action_spec.denormalize(policy.sample(obs, noise))
        torch.testing.assert_close(program({**obs, "noise": noise}), expected, atol=4e-5, rtol=0.0)  # +-4 N
    assert refines(policy, obs) == (name == "residual")


class Counting(nn.Module):
    """Takes a length as a number, which only Dynamo traces."""

    def forward(self, inputs: Obs) -> Tensor:
        return torch.zeros(len(inputs["x"]), 3) + inputs["x"]


class Keeping(nn.Module):
    """Keeps a tensor of its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None

    def forward(self, inputs: Obs) -> Tensor:
        if self.kept is None:
            self.kept = torch.ones(3)
        return inputs["x"] * self.kept


@pytest.mark.parametrize("made", [Counting, Keeping])
def test_policies_that_the_first_tracer_would_get_wrong(made: type[nn.Module]) -> None:
    """A length would be fixed at 2, and a kept tensor would be a fake one, with which no later call works."""
    module, inputs = made(), {"x": torch.rand(4, 3)}
    program = trace(module, inputs).module()
    assert torch.equal(program(inputs), inputs["x"])
    assert torch.equal(module(inputs), inputs["x"])


def test_refining_is_detected_from_the_graph() -> None:
    """A zero-initialised residual is the identity, but will be trained and must be exported."""
    zero, plain = SmallResidual(zero=True), Small()
    assert refines(zero, example_obs(zero, 2))
    assert not refines(plain, example_obs(plain, 2))


def test_a_graph_that_differs_from_torch_is_refused(tmp_path: Path) -> None:
    """Promise 4: the exported graph equals torch within 1e-5 on the whole chunk, or there is no graph."""
    policy = Unfaithful().train()
    with pytest.raises(CheckpointError, match=r"differs from torch by 0\.001 .* itself by"):
        export_policy(policy, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert policy.training  # the original can be trained on: the export worked on a copy
    assert policy.linear.weight.requires_grad


def test_untraceable_policy_is_refused(tmp_path: Path) -> None:
    """One sentence instead of the tracer's stack."""
    with pytest.raises(CheckpointError, match="branches on tensor values") as caught:
        export_policy(Untraceable(), tmp_path)
    assert "\n" not in str(caught.value)


def test_only_modules_are_exported(tmp_path: Path) -> None:
    """A policy in plain Python has no graph."""
    with pytest.raises(ConfigError, match=r"nn\.Module"):
        export_policy(NoisyPolicy(), tmp_path)


@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_a_missing_provider_is_refused(device: Any) -> None:
    """A silent fallback would make a robot ten times slower than measured."""
    if "CUDAExecutionProvider" in providers("auto"):
        pytest.skip("ONNX Runtime has CUDA here")
    with pytest.raises(ConfigError, match=f"device={device} needs .*onnxruntime-gpu"):
        providers(device)


def test_broken_graph_is_refused() -> None:
    """ONNX Runtime's own error names a protobuf, not a remedy."""
    with pytest.raises(CheckpointError, match="Export the bundle again"):
        OnnxGraph(b"not a graph", "policy.onnx")
