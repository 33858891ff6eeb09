"""Changed parameters of one MuJoCo model; see `sim.engines.changes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def change_model(model: Any, original: Any, changes: Mapping[str, Tensor]) -> None:
    """Scale `model` against `original`, a copy of which it is. Values as in `CHANGES`, without the first axis."""
    values = {name: value.cpu().numpy() for name, value in changes.items()}
    if (mass := values.get("mass_scale")) is not None:
        model.body_mass[:] = original.body_mass * mass
        model.body_inertia[:] = original.body_inertia * mass[:, None]
    if (friction := values.get("friction_scale")) is not None:
        model.geom_friction[:, 0] = original.geom_friction[:, 0] * friction
    if (kp := values.get("kp_scale")) is not None:
        model.actuator_gainprm[:, 0] = original.actuator_gainprm[:, 0] * kp
        model.actuator_biasprm[:, 1] = original.actuator_biasprm[:, 1] * kp
    if (kv := values.get("kv_scale")) is not None:
        model.actuator_biasprm[:, 2] = original.actuator_biasprm[:, 2] * kv
    if (strength := values.get("strength_scale")) is not None:
        model.actuator_forcerange[:] = original.actuator_forcerange * strength[:, None]
    if (damping := values.get("damping_scale")) is not None:
        model.dof_damping[:] = original.dof_damping * damping
