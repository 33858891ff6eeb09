"""Export of chunk policies as ONNX graphs by torch.export, compared with torch.

policy.onnx: raw observations by key, (b, To, *shape) in the units of the spec, and `noise` (b, Tp, a) ->
`chunk` (b, Tp, a) in the units of the action spec. It includes the normaliser, all K steps of the process and
the action limits. refine.onnx, for policies that correct each action just before it is executed: observations
and `action` (b, a) -> `refined` (b, a), both in the units of the action spec. The batch axis of both is
dynamic.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from policies.deploy.graph import OnnxGraph
from policies.saved_files import POLICY_GRAPH, REFINE_GRAPH
from robo_rl.core.errors import CheckpointError, ConfigError, MissingDependencyError
from robo_rl.core.files.durable import write_atomic
from robo_rl.core.packages import pip_install
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.seeding import generator
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.normalizer import Normalizer

TOLERANCE = 1e-5  # largest difference to torch over the chunk, in normalised action units
PARITY_BATCHES = (1, 2, 7)  # 1 as on a robot; 7 to test the dynamic batch axis
_EXPORT_BATCH = 2  # torch.export treats a batch of 1 as a constant


@dataclass(frozen=True, slots=True)
class ExportedGraph:
    """Entry of the manifest for a graph."""

    file: str
    inputs: tuple[str, ...]
    output: str
    parity: float  # largest measured difference to torch, in normalised action units

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "inputs": list(self.inputs), "output": self.output, "parity": self.parity}


def export_policy(
    policy: ChunkPolicy, folder: Path, example: Obs | None = None, tolerance: float = TOLERANCE
) -> list[ExportedGraph]:
    """Write policy.onnx and, for a policy with `refine`, refine.onnx. Returns their entries.

    example: real observations (b, To, *shape) for the comparison with torch; None: drawn from the
    normaliser's statistics. Raises CheckpointError if the graph differs from torch by more than `tolerance`,
    or if the policy cannot be exported.
    """
    if not isinstance(policy, nn.Module):
        raise ConfigError(f"Only an nn.Module can be exported, found a {type(policy).__name__}.")
    frozen = cast("ChunkPolicy", copy.deepcopy(policy).cpu().eval().requires_grad_(False))
    example = (
        example_obs(frozen, max(PARITY_BATCHES))
        if example is None
        else repeated(example, max(PARITY_BATCHES))
    )
    shape = (len(next(iter(example.values()))), frozen.chunk, frozen.action_spec.dim)
    noise = torch.randn(shape, generator=generator("export noise"))
    graphs = [
        _export(SampleGraph(frozen), POLICY_GRAPH, "chunk", {**example, "noise": noise}, folder, tolerance)
    ]
    action = frozen.action_spec.denormalize(noise[:, 0].tanh())
    if refines(frozen, example):
        graphs.append(
            _export(
                RefineGraph(frozen), REFINE_GRAPH, "refined", {**example, "action": action}, folder, tolerance
            )
        )
    return graphs


def example_obs(policy: ChunkPolicy, batch: int) -> Obs:
    """Observations within the normaliser's range, with images of random pixels."""
    rng, obs, statistics = generator("export observation"), {}, normalizer_statistics(policy)
    for key, spec in sorted(policy.obs_spec.items()):
        shape = (batch, policy.obs_steps, *spec.shape)
        if key == INSTRUCTION:
            obs[key] = _words(shape, rng)
        elif spec.torch_dtype == torch.uint8:
            obs[key] = torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8)
        else:
            center, scale = statistics.get(key, (torch.zeros(spec.shape), torch.ones(spec.shape)))
            obs[key] = center + scale * (2.0 * torch.rand(shape, generator=rng) - 1.0)
    return obs


def _words(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Instructions of random letters, from one letter to the full length."""
    letters = torch.randint(ord("a"), ord("z") + 1, shape, generator=rng, dtype=torch.uint8)
    lengths = torch.linspace(1, shape[-1], shape[0]).long().view(-1, *[1] * (len(shape) - 1))
    return letters * (torch.arange(shape[-1]) < lengths)


def normalizer_statistics(policy: ChunkPolicy) -> dict[str, tuple[Tensor, Tensor]]:
    """key -> (center, scale) of the first normaliser in the policy; empty without one."""
    modules = policy.modules() if isinstance(policy, nn.Module) else ()
    normalizers = (module for module in modules if isinstance(module, Normalizer))
    return next((normalizer.statistics() for normalizer in normalizers), {})


def refines(policy: ChunkPolicy, example: Obs) -> bool:
    """True if `refine` computes anything in the traced graph; a zero-initialised residual counts."""
    action = torch.zeros(len(next(iter(example.values()))), policy.action_spec.dim)
    nodes = trace(_RawRefine(policy), {**example, "action": action}).graph.nodes
    returned = next(node.args[0] for node in nodes if node.op == "output")
    return bool(returned[0].op != "placeholder")


class _Traced(nn.Module):
    """Base of traced modules: holds the policy, so that its weights are registered, and names all inputs."""

    def __init__(self, policy: ChunkPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.spec: ActionSpec = policy.action_spec


class SampleGraph(_Traced):
    def forward(self, inputs: Obs) -> Float[Tensor, "b Tp a"]:
        obs = {key: inputs[key] for key in self.policy.obs_spec}
        return self.spec.denormalize(self.policy.sample(obs, inputs["noise"]))


class _RawRefine(_Traced):
    def forward(self, inputs: Obs) -> Float[Tensor, "b a"]:
        return self.policy.refine({key: inputs[key] for key in self.policy.obs_spec}, inputs["action"])


class RefineGraph(_Traced):
    def forward(self, inputs: Obs) -> Float[Tensor, "b a"]:
        obs = {key: inputs[key] for key in self.policy.obs_spec}
        return self.spec.denormalize(self.policy.refine(obs, self.spec.normalize(inputs["action"])))


def trace(module: nn.Module, inputs: Obs) -> torch.export.ExportedProgram:
    """Traced program with a dynamic batch axis.

    Tracing by Python takes less time than by Dynamo, but only Dynamo keeps `len(tensor)` symbolic, so Dynamo
    traces what Python cannot. The module is called once before: a tensor that it makes at its first call and
    keeps would otherwise be a fake one of the tracer.
    """
    batch = torch.export.Dim("b", min=1)
    inputs = {key: value[:_EXPORT_BATCH] for key, value in inputs.items()}
    shapes = {"inputs": {key: {0: batch} for key in inputs}}
    with _quiet(), torch.no_grad():
        try:
            module(inputs)
            return torch.export.export(module, (inputs,), dynamic_shapes=shapes, strict=False)
        except Exception:  # of any kind: Dynamo reads the code in another way, and names what it cannot trace
            pass
        try:
            return torch.export.export(module, (inputs,), dynamic_shapes=shapes, strict=True)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise CheckpointError(
                "torch.export cannot trace this policy with a free batch axis: "
                f"{str(error).strip().splitlines()[0]} Write sample() and refine() without branches on "
                "tensor values and without numbers taken from shapes."
            ) from error


def _export(
    module: _Traced, file: str, output: str, inputs: Obs, folder: Path, tolerance: float
) -> ExportedGraph:
    program, names = trace(module, inputs), list(inputs)
    data = to_onnx(program, names, [output])
    parity = _parity(module, data, output, inputs, file)
    if not parity <= tolerance:  # also refuses NaN
        raise CheckpointError(
            f"The exported graph {file} differs from torch by {parity:.2g} in normalised action units, "
            f"allowed are {tolerance:.0e}; torch differs from itself by {_rounding(module, inputs):.2g} "
            "between batch sizes. If both are similar, the policy amplifies rounding (change its process); "
            "otherwise report the layer. No graph was written."
        )
    write_atomic(folder / file, data)
    return ExportedGraph(file, tuple(names), output, parity)


def to_onnx(program: torch.export.ExportedProgram, names: list[str], outputs: list[str]) -> bytes:
    """Graph of a traced program."""
    try:
        with _quiet():
            onnx = torch.onnx.export(
                program, dynamo=True, input_names=names, output_names=outputs, verbose=False
            )
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Export needs the package '{error.name}', which is not installed. Run: {pip_install('train')}"
        ) from error
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"This policy uses an operation that ONNX does not have: {reason}") from error
    assert onnx is not None
    data: bytes = onnx.model_proto.SerializeToString()
    return data


def _parity(module: _Traced, data: bytes, output: str, inputs: Obs, file: str) -> float:
    """Largest difference to torch over several batch sizes, relative to half the range of each action."""
    graph, worst = OnnxGraph(data, file, device="cpu"), []
    for batch in PARITY_BATCHES:
        rows = {key: value[:batch] for key, value in inputs.items()}
        with torch.no_grad():
            expected = module(rows)
        found = graph.run(rows, output)
        if found.shape != expected.shape:
            raise CheckpointError(
                f"{file} returns shape {tuple(found.shape)}, torch {tuple(expected.shape)}."
            )
        worst.append(difference(found, expected, module.spec))
    return float(torch.stack(worst).max())  # torch's max propagates NaN, Python's does not


def _rounding(module: _Traced, inputs: Obs) -> float:
    """Difference between torch's outputs for a batch and for its rows one by one."""
    with torch.no_grad():
        rows = [
            module({key: value[i : i + 1] for key, value in inputs.items()})
            for i in range(max(PARITY_BATCHES))
        ]
        together = module({key: value[: max(PARITY_BATCHES)] for key, value in inputs.items()})
    return float(difference(torch.cat(rows), together, module.spec))


def difference(a: Tensor, b: Tensor, spec: ActionSpec) -> Tensor:
    """max |a - b| in normalised action units."""
    half = (a.new_tensor(spec.high) - a.new_tensor(spec.low)) / 2
    return ((a - b).abs() / half).max()


def repeated(obs: Mapping[str, Tensor], batch: int) -> Obs:
    """At least `batch` rows by repetition of the given ones; keys in order."""
    rows = torch.arange(batch) % len(next(iter(obs.values())))
    return {key: obs[key].cpu()[rows] for key in sorted(obs)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's logs about torchvision, deprecated calls, and errors that are reported here."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch._guards")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            # transformers sets a variable of its own while it is traced
            warnings.filterwarnings("ignore", message="While compiling, we found certain side effects")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
