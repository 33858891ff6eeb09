"""A leader arm: a second arm, moved by hand and read by its driver, whose position the follower takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.states import ArmState
from hardware.teleop.device import Feedback, OperatorInput, Teleoperator
from robo_rl.core.errors import ConfigError

FRESH_S = 0.1


@runtime_checkable
class ReadableArm(Protocol):
    """An arm whose position is read: a driver, or a chain of servos."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def connect(self) -> None: ...

    def read(self) -> ArmState: ...

    def close(self) -> None: ...


class Leader:
    """arm: driver of the leader, or its servos. opening: of its handle, 0 closed to 1 open. dead_man: device
    whose switch counts, such as a gamepad or a pedal.

    signs, offsets_rad: follower = sign * leader + offset, joint by joint.
    """

    def __init__(
        self,
        arm: ReadableArm,
        dead_man: Teleoperator,
        signs: Sequence[float] | None = None,
        offsets_rad: Sequence[float] | None = None,
        opening: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._arm, self._dead_man = arm, dead_man
        self._given, self._opening = (signs, offsets_rad), opening
        self._signs, self._offsets_rad = np.ones(0), np.zeros(0)

    def connect(self) -> None:
        self._dead_man.connect()
        self._arm.connect()
        joints = len(self._arm.names)  # known once it is connected
        signs, offsets_rad = self._given
        self._signs = np.ones(joints) if signs is None else np.array(signs, float)
        self._offsets_rad = np.zeros(joints) if offsets_rad is None else np.array(offsets_rad, float)
        if (
            self._signs.shape != (joints,)
            or self._offsets_rad.shape != (joints,)
            or (np.abs(self._signs) != 1.0).any()
        ):
            self.close()
            raise ConfigError(
                f"A leader with {joints} joints needs {joints} signs of 1 or -1, and {joints} offsets."
            )

    def get_action(self, now_s: float) -> OperatorInput:
        """Position of the leader; held only while its state is fresh."""
        switch = self._dead_man.get_action(now_s)
        state = self._arm.read()
        if not switch.held or now_s - state.received_s > FRESH_S or not np.isfinite(state.position_rad).all():
            return OperatorInput(False, recorder_request=switch.recorder_request)
        position_rad = self._signs * state.position_rad + self._offsets_rad
        return OperatorInput(
            True,
            position_rad=position_rad,
            gripper=self._opening() if switch.gripper is None else switch.gripper,
            gripper_toggle=switch.gripper_toggle,
            recorder_request=switch.recorder_request,
        )

    def send_feedback(self, feedback: Feedback) -> None:
        self._dead_man.send_feedback(feedback)

    def help(self) -> str:
        return f"The arm follows its leader while the switch is held; {self._dead_man.help()}"

    def close(self) -> None:
        try:
            self._dead_man.close()
        finally:
            self._arm.close()
