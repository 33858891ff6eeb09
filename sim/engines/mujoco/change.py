"""Changed parameters of one MuJoCo model; see `sim.engines.changes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
from torch import Tensor

DERIVED = (
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "tendon_invweight0",
)  # of masses, by mj_setConst


def change_model(model: Any, original: Any, changes: Mapping[str, Tensor], data: Any) -> None:
    """Scale `model` against `original`, of which it is a copy. Values as in `CHANGES`, without the first
    axis.

    data: a mujoco.MjData whose state is overwritten. Quantities that MuJoCo derives from masses are derived
    again: contacts and limits scale with them, and MuJoCo 4 becomes unstable with stale ones.
    """
    values = {name: value.cpu().numpy() for name, value in changes.items()}
    if (mass := values.get("mass_scale")) is not None:
        model.body_mass[:] = original.body_mass * mass
        model.body_inertia[:] = original.body_inertia * mass[:, None]
        mujoco.mj_setConst(model, data)
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
