"""Shapes in annotations: `Float[Tensor, "b a"]`, as jaxtyping writes them, without loading jaxtyping.

Type checkers see jaxtyping, and so does a run in which it was imported first, such as `make shapes`, which
checks every call. Everywhere else `Float[Tensor, "b a"]` is `Tensor`: importing jaxtyping takes a fifth of
the time in which a robot's node starts, and a robot does not need to install it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.modules.get("jaxtyping") is not None:
    from jaxtyping import Bool, Float, Float32, Float64, Int, Int64, Shaped, UInt8
else:

    class _Unchecked:
        """Stand-in for a dtype of jaxtyping: subscribed, it is the class of the array alone."""

        def __class_getitem__(cls, array_and_shape: tuple[Any, str]) -> Any:
            return array_and_shape[0]

    Bool = Float = Float32 = Float64 = Int = Int64 = Shaped = UInt8 = _Unchecked

__all__ = ["Bool", "Float", "Float32", "Float64", "Int", "Int64", "Shaped", "UInt8"]
