"""Quantities that MuJoCo derives from masses, for many worlds at once, on the device.

mj_setConst derives them for one model on the host. Here the mass matrix at the reference pose is a sum over
bodies of their factors times constant matrices, so that all worlds need one batched inversion.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from robo_rl.core.shapes import Float


class DerivedOfMasses:
    """Fields of a model (mujoco.MjModel) as functions of each body's factor on mass and inertia, in float64.

    With M the mass matrix at the reference pose and J_b the Jacobian of body b at its centre of mass,
    dof_invweight0 is the diagonal of M^-1, averaged over the axes of a ball or free joint, body_invweight0 is
    that of J_b M^-1 J_b', averaged over translations and over rotations, and tendon_invweight0 is J M^-1 J'
    (MuJoCo, engine_setconst.c).
    """

    def __init__(self, model: Any, device: torch.device) -> None:
        data = mujoco.MjData(model)
        data.qpos[:] = model.qpos0
        mujoco.mj_fwdPosition(model, data)
        jacobians = np.stack([_body_jacobian(model, data, body) for body in range(model.nbody)])
        inertia = [_spatial_inertia(model, data, body) for body in range(model.nbody)]
        per_body = np.stack([j.T @ i @ j for j, i in zip(jacobians, inertia, strict=True)])
        tendons = _tendon_jacobian(model, data)
        armature = np.diag(model.dof_armature) + tendons.T @ np.diag(model.tendon_armature) @ tendons

        def on_device(array: Any) -> Tensor:
            return torch.as_tensor(np.asarray(array, np.float64), device=device)

        self._jacobian, self._per_body, self._armature = map(on_device, (jacobians, per_body, armature))
        self._tendons, self._mass, self._inside = map(on_device, (tendons, model.body_mass, _inside(model)))
        self._average = on_device(_averages(model))
        self._moves = on_device(model.body_weldid != 0)[:, None]  # the weights of fixed bodies are 0

    def of(self, mass_scale: Float[Tensor, "n nb"]) -> dict[str, Float[Tensor, "n ..."]]:
        """Field -> values in each world; fields that are empty in this model are left out."""
        scale = mass_scale.to(self._mass)
        inverse = torch.linalg.inv_ex(self._armature + torch.einsum("nb,bij->nij", scale, self._per_body))[0]
        turned = torch.einsum("bri,nij->nbrj", self._jacobian, inverse)
        weights = (turned * self._jacobian).sum(-1)  # (n, nb, 6)
        body = weights.unflatten(-1, (2, 3)).mean(-1) * self._moves
        fields = {
            "body_subtreemass": (scale * self._mass) @ self._inside.T,
            "body_invweight0": body,
            "dof_invweight0": inverse.diagonal(dim1=-2, dim2=-1) @ self._average.T,
            "tendon_invweight0": torch.einsum("ti,nij,tj->nt", self._tendons, inverse, self._tendons),
        }
        return {name: value for name, value in fields.items() if value[0].numel()}


def _body_jacobian(model: Any, data: Any, body: int) -> Float[np.ndarray, "6 nv"]:
    """Translation and rotation of a body at its centre of mass, per degree of freedom."""
    rows = np.zeros((6, model.nv))
    mujoco.mj_jacBodyCom(model, data, rows[:3], rows[3:], body)
    return rows


def _spatial_inertia(model: Any, data: Any, body: int) -> Float[np.ndarray, "6 6"]:
    """Mass and rotational inertia of a body at its centre of mass, in world axes."""
    turn = data.ximat[body].reshape(3, 3)
    inertia = np.zeros((6, 6))
    inertia[:3, :3] = model.body_mass[body] * np.eye(3)
    inertia[3:, 3:] = turn @ np.diag(model.body_inertia[body]) @ turn.T
    return inertia


def _tendon_jacobian(model: Any, data: Any) -> Float[np.ndarray, "nt nv"]:
    """Length of each tendon per degree of freedom; MuJoCo stores the entries that are not 0."""
    dense = np.zeros((model.ntendon, model.nv))
    for tendon in range(model.ntendon):
        at = model.ten_J_rowadr[tendon] + np.arange(model.ten_J_rownnz[tendon])
        dense[tendon, model.ten_J_colind[at]] = data.ten_J[at]
    return dense


def _inside(model: Any) -> Float[np.ndarray, "nb nb"]:
    """1 where the second body is in the subtree of the first."""
    inside = np.eye(model.nbody)
    for body in range(model.nbody - 1, 0, -1):  # parents come before their children
        inside[model.body_parentid[body]] += inside[body]
    return inside


def _averages(model: Any) -> Float[np.ndarray, "nv nv"]:
    """Matrix that averages over the three axes of a ball joint, and of each half of a free joint."""
    average = np.eye(model.nv)
    for kind, first in zip(model.jnt_type, model.jnt_dofadr, strict=True):
        halves = {mujoco.mjtJoint.mjJNT_FREE: 2, mujoco.mjtJoint.mjJNT_BALL: 1}.get(kind, 0)
        for start in range(first, first + 3 * halves, 3):
            average[start : start + 3, start : start + 3] = 1.0 / 3.0
    return average
