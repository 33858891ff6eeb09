"""Body positions of a state, computed by MuJoCo's kinematics for every engine."""

from __future__ import annotations

import mujoco
import torch
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene


def place(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    qpos: Float[ndarray, " nq"],
    fixture_m: Float[ndarray, "nf 3"],
    fixture_quat: Float[ndarray, "nf 4"],
) -> None:
    """Put the bodies of `data` where these joints and fixtures have them. Quaternions wxyz, body -> world."""
    data.qpos[:], data.mocap_pos[:], data.mocap_quat[:] = qpos, fixture_m, fixture_quat
    mujoco.mj_kinematics(model, data)


class ForwardKinematics:
    """Forward kinematics of start states of one scene.

    The changes of `sim.engines.changes` move no body in a start state.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._model = scene.model if scene.bare is None else scene.bare
        self._data = mujoco.MjData(self._model)

    def at(self, start: Start) -> Physics:
        """State of worlds that start so, on the start's device; touch sensors read zero."""
        model, data, like = self._model, self._data, start.qpos
        k = len(like)
        body_m, body_quat = (torch.empty(k, model.nbody, size, dtype=like.dtype) for size in (3, 4))
        given = (start.qpos, start.fixture_m, start.fixture_quat)
        rows = zip(*(each.cpu().numpy() for each in given), body_m.numpy(), body_quat.numpy(), strict=True)
        for qpos, fixture_m, fixture_quat, place_m, place_quat in rows:
            place(model, data, qpos, fixture_m, fixture_quat)
            place_m[:], place_quat[:] = data.xpos, data.xquat
        qvel = like.new_zeros(k, model.nv) if start.qvel is None else start.qvel
        touch_n = like.new_zeros(k, len(self._scene.touch))
        return Physics(like, qvel, body_m.to(like.device), body_quat.to(like.device), touch_n)
