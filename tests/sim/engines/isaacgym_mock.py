"""A worker as Isaac Gym's, with C MuJoCo behind the real protocol and the real loop. Not a test; started by
tests.

MOCK_SCENE: a file of MJCF. MOCK_FAILS: "<how>:<step>", a way to fail and the step at which it does.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "sim" / "engines" / "isaacgym"))
import worker


class MujocoSim:
    def __init__(self, description: Any, slots: Any) -> None:
        self._slots = slots
        self._models = [mujoco.MjModel.from_xml_path(os.environ["MOCK_SCENE"]) for _ in slots["qpos"]]
        self._data = [mujoco.MjData(model) for model in self._models]
        self._original = mujoco.MjModel.from_xml_path(os.environ["MOCK_SCENE"])
        how, _, step = os.environ.get("MOCK_FAILS", ":").partition(":")
        self._how, self._left = how, int(step or 0)
        print(f"{len(slots['qpos'])} worlds of {len(description['actors'])} actors", flush=True)

    def step(self, substeps: int) -> None:
        self._left -= 1
        if self._how and self._left == 0:
            fail(self._how)
        slots = self._slots
        for i, (model, data) in enumerate(zip(self._models, self._data, strict=True)):
            data.ctrl[:] = slots["ctrl"][i]
            mujoco.mj_step(model, data, substeps)
            mujoco.mj_kinematics(model, data)
            for name, value in (("qpos", data.qpos), ("qvel", data.qvel), ("body_m", data.xpos)):
                slots[name][i] = value
            slots["body_quat"][i], slots["touch_n"][i] = data.xquat, data.sensordata

    def set_state(self, worlds: list[int]) -> None:
        for i in worlds:
            mujoco.mj_resetData(self._models[i], self._data[i])
            for name, value in (("qpos", self._data[i].qpos), ("qvel", self._data[i].qvel)):
                value[:] = self._slots[name][i]
            self._data[i].mocap_pos[:] = self._slots["fixture_m"][i]
            self._data[i].mocap_quat[:] = self._slots["fixture_quat"][i]

    def randomise(self, worlds: list[int], changes: list[str]) -> None:
        assert set(changes) <= {"mass_scale", "kp_scale"}
        for row, i in enumerate(worlds):
            for name in changes:
                scale = np.array(self._slots[name][row], float)
                if name == "mass_scale":
                    self._models[i].body_mass[:] = self._original.body_mass * scale
                    self._models[i].body_inertia[:] = self._original.body_inertia * scale[:, None]
                    mujoco.mj_setConst(self._models[i], mujoco.MjData(self._models[i]))
                else:
                    self._models[i].actuator_gainprm[:, 0] = self._original.actuator_gainprm[:, 0] * scale
                    self._models[i].actuator_biasprm[:, 1] = self._original.actuator_biasprm[:, 1] * scale

    def close(self) -> None:
        print("closed", flush=True)


def fail(how: str) -> None:
    print("the GPU is on fire", flush=True)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "raise":
        raise RuntimeError("PhysX has lost its device")
    if how == "exit":
        sys.exit(7)
    if how == "hang":
        time.sleep(600)
    if how == "babble":
        os.write(int(sys.argv[2]), b"\xff\xff\xff\xffhello")


if __name__ == "__main__":
    worker.main(MujocoSim)
