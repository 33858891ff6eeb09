"""Detection of what slows a loop on a GPU: reads of the device by the host, and tensors made elsewhere.

`HostReads` counts both while code runs, on any machine: operations that need a value on the host (`item`,
`bool`, `nonzero`, a mask as an index, `cpu`, `numpy`, `tolist`), and tensors made without naming a device,
which are on the CPU whatever the run's device is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import extract_stack
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_READS = {"_local_scalar_dense", "nonzero", "masked_select", "unique2", "_unique2", "is_nonzero", "equal"}
_FACTORIES = (
    torch.zeros, torch.ones, torch.full, torch.empty, torch.arange, torch.linspace, torch.rand, torch.randn,
    torch.randint, torch.randperm, torch.eye, torch.tensor, torch.as_tensor,
)  # fmt: skip
_METHODS = ("tolist", "numpy", "cpu")  # of a CPU tensor; they reach no operation


class HostReads(TorchDispatchMode):
    """Counts, by the line of ours that caused them. reads: of the device. strays: tensors made on no named
    device.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reads: Counter[str] = Counter()
        self.strays: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _READS or (name.startswith("index") and _has_mask(args)):
            self.reads[f"{name} at {_place()}"] += 1
        return func(*args, **kwargs)

    @contextmanager
    def watching(self) -> Iterator[HostReads]:
        """Count while the block runs."""
        kept = {name: getattr(Tensor, name) for name in _METHODS}
        for name, method in kept.items():
            setattr(Tensor, name, self._counted(name, method))
        try:
            with self, _Factories(self.strays):
                yield self
        finally:
            for name, method in kept.items():
                setattr(Tensor, name, method)

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            self.reads[f"{name} at {_place()}"] += 1
            return method(tensor, *args, **kwargs)

        return counted


class _Factories(TorchFunctionMode):
    """Counts calls that make a tensor without naming a device."""

    def __init__(self, strays: Counter[str]) -> None:
        super().__init__()
        self.strays = strays

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = bool(args) and isinstance(args[0], Tensor)  # as_tensor of a tensor keeps its device
        if func in _FACTORIES and kwargs.get("device") is None and not given:
            self.strays[f"{func.__name__} at {_place()}"] += 1
        return func(*args, **kwargs)


def _has_mask(args: tuple[Any, ...]) -> bool:
    indices = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    return any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _place() -> str:
    """File and line of the innermost frame outside torch and this file."""
    for frame in reversed(extract_stack()):
        if "/torch/" not in frame.filename and frame.filename != __file__:
            return f"{frame.filename}:{frame.lineno}"
    return "unknown"
