"""ONNX graphs under ONNX Runtime: with tensors by name, or with preallocated arrays for loops at 1 kHz."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import CheckpointError, ConfigError, MissingDependencyError
from robo_rl.core.packages import pip_install

if TYPE_CHECKING:  # heads that decide with NumPy arrays start without torch
    from torch import Tensor

    from robo_rl.core.protocols import Obs

Device = Literal["auto", "cpu", "cuda", "tensorrt"]
_CUDA, _CPU, _TENSORRT = "CUDAExecutionProvider", "CPUExecutionProvider", "TensorrtExecutionProvider"
_TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}  # types of observations and actions


class OnnxGraph:
    """An ONNX graph. source: path or bytes. One intra-op thread: at batch 1 more threads only use more
    CPU.
    """

    def __init__(self, source: Path | bytes, name: str, device: Device = "auto", threads: int = 1) -> None:
        runtime = _onnxruntime()
        self._session = _session(runtime, source, name, _options(runtime, threads), providers(device))
        self.name = name
        nodes = self._session.get_inputs()
        self.shapes = {node.name: tuple(node.shape[1:]) for node in nodes}  # without the batch axis
        self._types = {node.name: _TYPES[node.type] for node in nodes if node.type in _TYPES}
        self.device: str = self._session.get_providers()[0].removesuffix("ExecutionProvider").lower()

    def run(self, inputs: Obs, output: str) -> Tensor:
        """Run on the inputs of the graph, converted to its types. Raises ConfigError for a missing input or a
        wrong shape.
        """
        return self._run(inputs, [output])[0]

    def run_all(self, inputs: Obs) -> Obs:
        """All outputs by name."""
        names = [node.name for node in self._session.get_outputs()]
        return dict(zip(names, self._run(inputs, names), strict=True))

    def _run(self, inputs: Obs, outputs: list[str]) -> list[Tensor]:
        for key, shape in self.shapes.items():
            if key not in inputs or tuple(inputs[key].shape[1:]) != shape:
                found = f"shape {tuple(inputs[key].shape)}" if key in inputs else f"only {sorted(inputs)}"
                raise ConfigError(
                    f"{self.name} needs '{key}' of shape (batch, {', '.join(map(str, shape))}), found "
                    f"{found}."
                )
        import torch

        feed = {key: inputs[key].detach().cpu().contiguous().numpy() for key in self.shapes}
        feed |= {key: feed[key].astype(dtype, copy=False) for key, dtype in self._types.items()}
        return [torch.from_numpy(value) for value in self._session.run(outputs, feed)]


class BoundGraph:
    """A graph for single observations on the CPU: arrays without batch axis by name -> an array.

    The graph reads and writes preallocated arrays, and constants that follow from a batch of one are folded
    at loading. A call takes a quarter less time than with `OnnxGraph` and allocates nothing. The next call
    overwrites the result.
    """

    def __init__(self, path: Path, output: str) -> None:
        runtime = _onnxruntime()
        options = _options(runtime, threads=1)
        inputs = _session(runtime, path, path.name, options, [_CPU]).get_inputs()
        # names of dynamic axes are known only after loading
        for batch in {str(node.shape[0]) for node in inputs}:
            options.add_free_dimension_override_by_name(batch, 1)
        self._session = _session(runtime, path, path.name, options, [_CPU])
        self.name = path.name
        feed = {node.name: np.zeros((1, *node.shape[1:]), _TYPES[node.type]) for node in inputs}
        out = self._session.run([output], feed)[0].copy()
        self._binding = self._session.io_binding()
        for name, array in feed.items():
            self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._binding.bind_output(output, "cpu", 0, out.dtype.type, out.shape, out.ctypes.data)
        self._inputs = {name: array[0] for name, array in feed.items()}
        self._output: NDArray[np.float32] = out[0]

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Run on the inputs of the graph. Raises ConfigError for a missing input or a wrong shape."""
        for name, place in self._inputs.items():
            value = inputs.get(name)
            if value is None or value.shape != place.shape:
                found = f"only {sorted(inputs)}" if value is None else f"shape {value.shape}"
                raise ConfigError(f"{self.name} needs '{name}' of shape {place.shape}, found {found}.")
            place[...] = value
        self._session.run_with_iobinding(self._binding)
        return self._output


def providers(device: Device) -> list[str]:
    """ONNX Runtime providers in order of preference. Raises ConfigError if a requested one is absent."""
    available = _onnxruntime().get_available_providers()
    if device == "auto":
        return [_CUDA, _CPU] if _CUDA in available else [_CPU]
    wanted = {"cpu": [_CPU], "cuda": [_CUDA, _CPU], "tensorrt": [_TENSORRT, _CUDA, _CPU]}[device]
    if wanted[0] not in available:
        raise ConfigError(
            f"device={device} needs ONNX Runtime with {wanted[0]}, found only {available}. Run: pip install "
            "onnxruntime-gpu" + (", and TensorRT's libraries." if device == "tensorrt" else "")
        )
    return [each for each in wanted if each in available]


def _options(runtime: Any, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    return options


def _session(runtime: Any, source: Path | bytes, name: str, options: Any, on: list[str]) -> Any:
    """ONNX Runtime session. Raises CheckpointError for a file that is no graph."""
    try:
        return runtime.InferenceSession(
            source if isinstance(source, bytes) else str(source), options, providers=on
        )
    except _errors(runtime) as error:
        raise CheckpointError(
            f"ONNX Runtime cannot load {name}: {error}. Export the bundle again."
        ) from error


def _errors(runtime: Any) -> tuple[type[Exception], ...]:
    """Exception classes of ONNX Runtime, which have no common base."""
    names = vars(runtime.capi.onnxruntime_pybind11_state).values()
    return tuple(name for name in names if isinstance(name, type) and issubclass(name, Exception))


def _onnxruntime() -> Any:
    # Otherwise it sends usage data from Linux, and stores an identifier of the machine in ~/.cache.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Running a bundle needs 'onnxruntime', which is not installed. Run: {pip_install('robot')}"
        ) from error
    return onnxruntime
