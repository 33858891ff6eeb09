"""Export of a vision-language-action policy, or of one built on it, as graphs that run at different rates.

prefix.onnx: pictures and words -> keys, values and mask of all layers, and pooled features. It runs when a
picture or the instruction changes. policy.onnx, the head: those, the states and `noise` -> `chunk`, and
refine.onnx for a step-wise residual, as in `policies.deploy.export`. Both run at control rate.

With a memory, the prefix also gives the `moment` of this decision, and the head reads `memory`, which the
caller holds: graphs have no state.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from policies.deploy.export import (
    PARITY_BATCHES,
    TOLERANCE,
    ExportedGraph,
    difference,
    example_obs,
    repeated,
    to_onnx,
    trace,
)
from policies.deploy.graph import OnnxGraph
from policies.saved_files import POLICY_GRAPH, PREFIX_GRAPH, REFINE_GRAPH
from policies.tuned.fine_tuned import corrects_steps, refine_from
from policies.vla.cond import Cond
from policies.vla.packed import bottom_vla
from policies.vla.policy import VlaPolicy
from policies.vla.tiny import TinyBackbone
from robo_rl.core.conditioning import MEMORY
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.files.durable import write_atomic
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import generator
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from robo_rl.core.text.instruction import INSTRUCTION

PREFIX = ("keys", "values", "mask", "pooled")  # outputs of the prefix graph, inputs of the others
MOMENT = "moment"  # another one, with a memory


@dataclass(frozen=True, slots=True)
class PrefixExport:
    """Graphs of a policy over a prefix: of `sample`, and of `refine` if it corrects steps; and the prefix."""

    graphs: list[ExportedGraph]
    inputs: tuple[str, ...]  # of the prefix
    outputs: tuple[str, ...]
    memory: tuple[int, int] | None  # shape of the memory that the head reads

    def to_json(self) -> dict[str, Any]:
        """Entry of the manifest for the prefix."""
        cameras = [key.partition(".")[2] for key in self.inputs if key != INSTRUCTION]
        entry = {
            "file": PREFIX_GRAPH,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "cameras": cameras,
        }
        return entry if self.memory is None else entry | {"memory": list(self.memory)}


class PrefixGraph(nn.Module):
    """Pictures and words -> the outputs of `prefix_outputs`, with one axis for the layers."""

    def __init__(self, vla: VlaPolicy) -> None:
        super().__init__()
        self.vla = vla

    def forward(self, inputs: Obs) -> tuple[Tensor, ...]:
        keys, values, mask, pooled, moment = self.vla.prefix(inputs)
        more = () if self.vla.memory is None else (moment,)
        return torch.stack(keys, dim=1), torch.stack(values, dim=1), mask, pooled, *more


class HeadGraph(nn.Module):
    """Prefix, states and noise -> chunk in the units of the action."""

    def __init__(self, policy: Any, vla: VlaPolicy) -> None:
        super().__init__()
        self.policy, self.vla = policy, vla
        self.spec: ActionSpec = policy.action_spec

    def forward(self, inputs: Obs) -> Float[Tensor, "b Tp a"]:
        chunk = self.policy.sample_from(condition(self.vla, inputs), inputs["noise"])
        return self.spec.denormalize(chunk)


class CorrectionGraph(nn.Module):
    """Prefix, states and action -> corrected action, both in the units of the action."""

    def __init__(self, policy: Any, vla: VlaPolicy) -> None:
        super().__init__()
        self.policy, self.vla = policy, vla
        self.spec: ActionSpec = policy.action_spec

    def forward(self, inputs: Obs) -> Float[Tensor, "b a"]:
        action = self.spec.normalize(inputs["action"])
        return self.spec.denormalize(refine_from(self.policy, condition(self.vla, inputs), action))


def condition(vla: VlaPolicy, inputs: Obs) -> Cond:
    """Condition of the inputs of a graph."""
    keys, values, mask, pooled = (inputs[name] for name in PREFIX)
    moment = pooled[:, :0] if vla.memory is None else inputs[MOMENT]
    return vla.condition((keys.unbind(1), values.unbind(1), mask, pooled, moment), inputs)


def prefix_outputs(vla: VlaPolicy) -> tuple[str, ...]:
    """Outputs of the prefix graph."""
    return PREFIX if vla.memory is None else (*PREFIX, MOMENT)


def example_memory(vla: VlaPolicy, rows: int) -> Obs:
    """Memory of random decisions, more in each row than in the one before, which has none in the first."""
    if (shape := vla.memory_shape) is None:
        return {}
    rng, (decisions, width) = generator("export memory"), shape
    held = torch.arange(decisions).flip(0) < torch.arange(rows)[:, None] % (decisions + 1)
    memory = torch.randn(rows, decisions, width, generator=rng)
    memory[:, :, 0] = 1.0
    return {MEMORY: memory * held.unsqueeze(-1)}


def export_with_prefix(
    policy: Any, folder: Path, example: Obs | None = None, tolerance: float = TOLERANCE
) -> PrefixExport:
    """Write the graphs. Raises as `export_policy` does; the chunk is compared through both graphs."""
    frozen = copy.deepcopy(policy).cpu().eval().requires_grad_(False)
    vla = bottom_vla(frozen)
    if not isinstance(vla.backbone, TinyBackbone):
        raise ConfigError(
            f"policy.backbone={vla.shape.backbone} cannot be exported, only backbone=tiny can. Run this "
            "policy from its folder (robo-rl evaluate), or train with policy.backbone=tiny."
        )
    rows = max(PARITY_BATCHES)
    obs = example_obs(frozen, rows) if example is None else repeated(example, rows)
    rng, shape = generator("export noise"), (len(obs[INSTRUCTION]), frozen.chunk, frozen.action_spec.dim)
    noise = torch.randn(shape, generator=rng)
    seen = {key: obs[key] for key in (*vla.pictures, INSTRUCTION)}
    obs |= example_memory(vla, len(obs[INSTRUCTION]))
    states = {key: obs[key] for key in (*vla.states, *((MEMORY,) if vla.memory is not None else ()))}
    outputs = prefix_outputs(vla)
    prefix_data = to_onnx(trace(PrefixGraph(vla), seen), list(seen), list(outputs))
    prefix = OnnxGraph(prefix_data, PREFIX_GRAPH, device="cpu")
    encoded = prefix.run_all(seen)
    action = frozen.action_spec.denormalize(noise[:, 0].tanh())
    parts: list[tuple[str, nn.Module, str, Obs]] = [
        (POLICY_GRAPH, HeadGraph(frozen, vla), "chunk", {"noise": noise})
    ]
    if corrects_steps(frozen):
        parts.append((REFINE_GRAPH, CorrectionGraph(frozen, vla), "refined", {"action": action}))
    graphs, written = [], {PREFIX_GRAPH: prefix_data}
    for file, module, output, more in parts:
        inputs = {**states, **encoded, **more}
        written[file] = to_onnx(trace(module, inputs), list(inputs), [output])
        graph = OnnxGraph(written[file], file, device="cpu")
        worst = _worst(frozen, prefix, graph, obs, more, output)
        if not worst <= tolerance:  # also refuses NaN
            raise CheckpointError(
                f"The exported graphs {PREFIX_GRAPH} and {file} differ from torch by {worst:.2g} in "
                f"normalised action units, allowed are {tolerance:.0e}. The policy amplifies rounding: "
                "report it, or lower policy.process.steps. No graph was written."
            )
        graphs.append(ExportedGraph(file, tuple(graph.shapes), output, worst))
    for file, data in written.items():
        write_atomic(folder / file, data)
    return PrefixExport(graphs, tuple(seen), outputs, vla.memory_shape)


def _worst(policy: Any, prefix: OnnxGraph, graph: OnnxGraph, obs: Obs, more: Obs, output: str) -> float:
    """Largest difference to torch, from observation to action, over several batch sizes."""
    each = []
    for batch in PARITY_BATCHES:
        rows, given = ({key: value[:batch] for key, value in part.items()} for part in (obs, more))
        found = graph.run({**rows, **prefix.run_all(rows), **given}, output)
        with torch.no_grad():
            each.append(difference(found, _expected(policy, rows, given), policy.action_spec))
    return float(torch.stack(each).max())  # torch's max propagates NaN, Python's does not


def _expected(policy: Any, obs: Obs, given: Obs) -> Tensor:
    spec = policy.action_spec
    if "noise" in given:
        chunk: Tensor = spec.denormalize(policy.sample(obs, given["noise"]))
        return chunk
    refined: Tensor = spec.denormalize(policy.refine(obs, spec.normalize(given["action"])))
    return refined
