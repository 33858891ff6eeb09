"""Changed parameters of single worlds on the device; see `sim.engines.changes`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import mujoco
import torch
import warp as wp
from torch import Tensor

from robo_rl.core.shapes import Float, Int
from sim.engines.mujoco.change import DERIVED, change_model

_FIELDS = {  # change -> fields of the model it scales: (name, the one column it scales or None for all)
    "mass_scale": (("body_mass", None), ("body_inertia", None)),
    "friction_scale": (("geom_friction", 0),),
    "kp_scale": (("actuator_gainprm", 0), ("actuator_biasprm", 1)),
    "kv_scale": (("actuator_biasprm", 2),),
    "strength_scale": (("actuator_forcerange", None),),
    "damping_scale": (("dof_damping", None),),
}


class Changes:
    """Fields that each world has for itself once one world differs. Until then all worlds share one row."""

    def __init__(self, model: Any, num_envs: int, host: Any) -> None:
        self._model, self._num_envs = model, num_envs
        self._host, self._changed, self._data = host, deepcopy(host), mujoco.MjData(host)
        self._original: dict[str, Tensor] = {}  # (1, ...)
        self._own: dict[str, Tensor] = {}  # (n, ...), zero-copy

    def apply(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> bool:
        """Scale against the original model. Returns True when arrays were replaced: captured graphs are then
        invalid.
        """
        exchanged = False
        for change, scale in changes.items():
            for field, column in _FIELDS[change]:
                exchanged |= self._split(field)
                original, own = self._original[field], self._own[field]
                factor = scale.to(own.device, own.dtype).reshape(
                    len(worlds), *([-1] if scale.ndim == 2 else [1])
                )
                if column is None:  # (k, x) against (1, x) or (1, x, 3)
                    own[worlds] = original * factor.reshape(*factor.shape, *[1] * (original.ndim - 2))
                else:  # one column of (1, x, c)
                    own[worlds, :, column] = original[..., column] * factor
        if "mass_scale" in changes:
            exchanged |= self._derive(worlds, changes["mass_scale"].cpu())
        return exchanged

    def _derive(self, worlds: Int[Tensor, " k"], mass_scale: Float[Tensor, "k nb"]) -> bool:
        """Quantities derived from masses, by C MuJoCo: MuJoCo Warp's own function loops over all worlds and
        overwrites their states.
        """
        fields = [field for field in DERIVED if getattr(self._host, field).size]
        rows: dict[str, list[Tensor]] = {field: [] for field in fields}
        for mass in mass_scale:
            change_model(self._changed, self._host, {"mass_scale": mass}, self._data)
            for field in fields:
                rows[field].append(torch.from_numpy(getattr(self._changed, field).copy()))
        exchanged = any([self._split(field) for field in fields])  # all of them, so no generator
        for field in fields:
            own = self._own[field]
            own[worlds] = torch.stack(rows[field]).to(own.device, own.dtype)
        return exchanged

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
