"""One ONNX graph under ONNX Runtime: tensors in by name, a tensor out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.core.errors import CheckpointError, ConfigError, MissingDependencyError
from robo_rl.core.protocols import Obs

Device = Literal["auto", "cpu", "cuda"]
_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class Graph:
    """`source` is a path or the bytes of a graph. One intra-op thread: at batch 1 more threads only burn CPU."""

    def __init__(self, source: Path | bytes, name: str, device: Device = "auto", threads: int = 1) -> None:
        runtime = _onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only
        try:
            self._session = runtime.InferenceSession(
                source if isinstance(source, bytes) else str(source), options, providers=providers(device)
            )
        except _errors(runtime) as error:
            raise CheckpointError(f"ONNX Runtime cannot load {name}: {error}. Export the bundle again.") from error
        self.name = name
        self.shapes = {node.name: tuple(node.shape[1:]) for node in self._session.get_inputs()}  # without the batch
        self.device: str = self._session.get_providers()[0].removesuffix("ExecutionProvider").lower()

    def run(self, inputs: Obs, output: str) -> Tensor:
        """Run on the inputs that the graph asks for. Raises ConfigError for a missing one or a wrong shape."""
        for key, shape in self.shapes.items():
            if key not in inputs or tuple(inputs[key].shape[1:]) != shape:
                found = f"shape {tuple(inputs[key].shape)}" if key in inputs else f"only {sorted(inputs)}"
                raise ConfigError(
                    f"{self.name} needs '{key}' of shape (batch, {', '.join(map(str, shape))}), found {found}."
                )
        feed = {key: inputs[key].detach().cpu().contiguous().numpy() for key in self.shapes}
        return torch.from_numpy(self.run_arrays(feed, output))

    def run_arrays(self, inputs: Mapping[str, NDArray[Any]], output: str) -> NDArray[Any]:
        """The same from arrays of the right shapes and types to an array, unchecked: for loops at 1 kHz."""
        found: NDArray[Any] = self._session.run([output], inputs)[0]
        return found


def providers(device: Device) -> list[str]:
    """ONNX Runtime providers in order of preference. Raises ConfigError when CUDA is asked for but absent."""
    available = _onnxruntime().get_available_providers()
    if device == "cuda" and _CUDA not in available:
        raise ConfigError(
            f"device=cuda needs ONNX Runtime with CUDA, found only {available}. Run: pip install onnxruntime-gpu"
        )
    return [_CUDA, _CPU] if device != "cpu" and _CUDA in available else [_CPU]


def _errors(runtime: Any) -> tuple[type[Exception], ...]:
    """ONNX Runtime's exceptions have no common base of their own."""
    names = vars(runtime.capi.onnxruntime_pybind11_state).values()
    return tuple(name for name in names if isinstance(name, type) and issubclass(name, Exception))


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "Running a bundle needs 'onnxruntime', which is not installed. Run: pip install 'robo-rl[robot]'"
        ) from error
    return onnxruntime
