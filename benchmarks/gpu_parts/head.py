"""Decisions per second of a single-step head and of the flow policy that it replaces.

gpu/head/<single_step|flow>/<batch>/decisions_per_s, in eager torch, and .../graph_decisions_per_s: the same
as a CUDA graph, on a GPU. .../<provider>_decisions_per_s: the exported bundle under ONNX Runtime, with each
provider that is installed (cpu, cuda, tensorrt); tensors are copied from and to the host.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from base import NETS, SPEC
from timing import emit, facts, options, seconds, unit

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.process import make_process
from policies.deploy.bundle import load_bundle
from policies.deploy.bundle_writer import write_bundle
from policies.deploy.runner import OnnxPolicy
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.image_encoder import ImageEncoderConfig


def main() -> None:
    args = options(__doc__)
    calls = 5 if args.quick else 200
    for label, steps in (("single_step", 1), ("flow", 10)):
        policy = made(steps)
        for batch in (1, 4096):
            work = decide(copy.deepcopy(policy).to(args.device), batch, args.device)
            name = f"gpu/head/{label}/{batch}"
            rate(f"{name}/decisions_per_{unit(args.device)}", work, batch, calls, args.device)
            if args.device == "cuda":
                rate(f"{name}/graph_decisions_per_s", captured(work), batch, calls, args.device)
        wanted = wanted_providers(args.device)
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write_bundle(Path(folder) / "bundle", policy, SPEC, name=label, noise="gaussian", training={})
            exported(Path(folder) / "bundle", wanted, f"gpu/head/{label}", calls, args.device)


def rate(name: str, work: Callable[[], object], batch: int, calls: int, device: str) -> None:
    """Print decisions per second. On a CPU large batches are measured once: they take seconds."""
    once = device == "cpu" and batch > 1
    taken_s = seconds(work, 1 if once else calls, device, warm_up=1 if once else 3)
    emit(name, round(batch / taken_s, 1), "decisions/s", us=round(1e6 * taken_s, 1), **facts(device))


def wanted_providers(device: str) -> tuple[str, ...]:
    """Providers of this device that ONNX Runtime has."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    names = {
        "cpu": "CPUExecutionProvider",
        "cuda": "CUDAExecutionProvider",
        "tensorrt": "TensorrtExecutionProvider",
    }
    installed = onnxruntime.get_available_providers()
    wanted = ("cpu",) if device == "cpu" else ("cuda", "tensorrt")
    for each in wanted:
        if names[each] not in installed:
            print(f"no {each}: this ONNX Runtime has no {names[each]}", file=sys.stderr)
    return tuple(each for each in wanted if names[each] in installed)


def exported(bundle: Path, providers: tuple[str, ...], name: str, calls: int, device: str) -> None:
    """The bundle under these providers."""
    for provider in providers:
        try:
            policy = OnnxPolicy(load_bundle(bundle), provider)  # type: ignore[arg-type]
        except ConfigError as error:
            print(f"{name}: no {provider}: {error}", file=sys.stderr)
            continue
        for batch in (1, 4096):
            line = f"{name}/{batch}/{provider}_decisions_per_{unit(device)}"
            rate(line, decide(policy, batch, "cpu"), batch, calls, device)


def made(steps: int) -> GenerativePolicy:
    """An MLP policy with random weights."""
    torch.manual_seed(0)
    normalizer = Normalizer.fit({"state": torch.rand(64, 32)})
    config = GenerativeConfig(obs_steps=2, chunk=16, execute=8, net=NETS["mlp"], image=ImageEncoderConfig())
    return GenerativePolicy(SPEC, normalizer, config, make_process(FlowConfig(steps=steps))).eval()


def decide(policy: ChunkPolicy, batch: int, device: str) -> Callable[[], object]:
    """One chunk for `batch` observations."""
    obs, noise = {"state": torch.rand(batch, 2, 32, device=device)}, torch.randn(batch, 16, 8, device=device)

    @torch.no_grad()
    def work() -> object:
        return policy.sample(obs, noise)

    return work


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """The same work as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


if __name__ == "__main__":
    main()
