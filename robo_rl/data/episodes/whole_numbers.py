"""Whole numbers in another type: refused where the type cannot hold them, which NumPy would wrap."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped


def require_in_range(key: str, values: Shaped[ndarray, "..."], dtype: str) -> None:
    """Raise DataError if `dtype` is an integer type that does not hold every one of these whole numbers.

    Values of other types, and those that always fit, are not looked at.
    """
    wanted = np.dtype(dtype)
    if values.dtype == wanted or values.dtype.kind not in "iu" or wanted.kind not in "iu" or not values.size:
        return
    if np.can_cast(values.dtype, wanted, "safe"):
        return
    limits = np.iinfo(wanted)
    for value in (int(values.min()), int(values.max())):
        if not limits.min <= value <= limits.max:
            raise DataError(
                f"'{key}' holds {value}, but the dataset stores {dtype}: {limits.min} to {limits.max}. Scale "
                "the values, or store them in a wider type, by another EnvSpec, env= or robot=."
            )
