"""Tensors of the stand-in are NumPy arrays; torch shares their memory, as with the real one."""

from __future__ import annotations

from typing import Any

import torch


def wrap_tensor(gym_tensor: Any) -> torch.Tensor:
    return torch.from_numpy(gym_tensor)


def unwrap_tensor(torch_tensor: torch.Tensor) -> Any:
    return torch_tensor.numpy()
