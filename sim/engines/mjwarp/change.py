"""Changed parameters of single worlds on the device; see `sim.engines.changes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import warp as wp
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int
from sim.engines.mjwarp.derived import DerivedOfMasses
from sim.engines.mujoco.change import DERIVED

_FIELDS = {  # change -> fields of the model it scales: (name, the one column it scales or None for all)
    "mass_scale": (("body_mass", None), ("body_inertia", None)),
    "friction_scale": (("geom_friction", 0),),
    "kp_scale": (("actuator_gainprm", 0), ("actuator_biasprm", 1)),
    "kv_scale": (("actuator_biasprm", 2),),
    "strength_scale": (("actuator_forcerange", None),),
    "damping_scale": (("dof_damping", None),),
}


class Changes:
    """Fields that each world has for itself once one world differs. Until then all worlds share one row.

    host: the same model as a mujoco.MjModel.
    """

    def __init__(self, model: Any, num_envs: int, host: Any) -> None:
        self._model, self._num_envs, self._host = model, num_envs, host
        self._original: dict[str, Tensor] = {}  # (1, ...)
        self._own: dict[str, Tensor] = {}  # (n, ...), zero-copy
        self._derived: DerivedOfMasses | None = None

    def apply(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> bool:
        """Scale against the original model. Returns True when arrays were replaced: captured graphs are then
        invalid.
        """
        exchanged = any([self._split(field) for field in self._fields(changes)])  # all, so no generator
        for field, column, value in self._values(changes):
            if column is None:
                self._own[field][worlds] = value
            else:
                self._own[field][worlds, :, column] = value
        return exchanged

    def apply_where(self, mask: Bool[Tensor, " n"], changes: Mapping[str, Tensor]) -> None:
        """`apply` in the worlds of a mask, which every world's own arrays must precede. changes: of all
        worlds.
        """
        for field, column, value in self._values(changes):
            own = self._own[field] if column is None else self._own[field][..., column]
            own.copy_(torch.where(mask.view(-1, *[1] * (own.ndim - 1)), value.to(own.dtype), own))

    def _fields(self, changes: Mapping[str, Tensor]) -> set[str]:
        """Fields of the model that differ between worlds with these changes."""
        fields = {field for change in changes for field, _ in _FIELDS[change]}
        if "mass_scale" in changes:
            fields |= {field for field in DERIVED if getattr(self._host, field).size}
        return fields

    def _values(self, changes: Mapping[str, Tensor]) -> Iterator[tuple[str, int | None, Tensor]]:
        """(field, column or None for all, values) of each changed world."""
        for change, scale in changes.items():
            for field, column in _FIELDS[change]:
                original = self._original[field]
                factor = scale.to(original).reshape(len(scale), *([-1] if scale.ndim == 2 else [1]))
                if column is None:  # (k, x) times (1, x) or (1, x, 3)
                    yield field, None, original * factor.reshape(*factor.shape, *[1] * (original.ndim - 2))
                else:  # one column of (1, x, c)
                    yield field, column, original[..., column] * factor
        if (masses := changes.get("mass_scale")) is not None:
            for field, value in self._derive(masses).items():
                yield field, None, value.to(self._original[field].dtype)

    def _derive(self, mass_scale: Float[Tensor, "k nb"]) -> dict[str, Tensor]:
        """Derived quantities. MuJoCo Warp has a function for them that overwrites the states of worlds."""
        if self._derived is None:
            self._derived = DerivedOfMasses(self._host, self._original["body_mass"].device)
        return self._derived.of(mass_scale)

    def _split(self, field: str) -> bool:
        if field in self._own:
            return False
        shared = getattr(self._model, field)
        self._original[field] = wp.to_torch(shared)[:1].clone()
        repeats = [self._num_envs] + [1] * (self._original[field].ndim - 1)
        self._own[field] = self._original[field].repeat(*repeats)
        setattr(self._model, field, wp.from_torch(self._own[field], dtype=shared.dtype))
        torch_stream_done(self._own[field])
        return True


def torch_stream_done(tensor: Tensor) -> None:
    """Wait until torch has written `tensor`: Warp reads it on another stream."""
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()
