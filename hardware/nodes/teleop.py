"""Teleoperation of an arm: `teleop/intervention` while the dead-man switch is held, with `teleop/command`.

Buttons that begin and end recordings publish on `episode/ask`. `teleop/joints` names the joints that the
operator drives beside the policy, if not all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Bus
from hardware.description import RobotDescription
from hardware.messages import JointState, JointTrajectory, Text
from hardware.nodes.shared.intervention_flag import InterventionFlag
from hardware.nodes.shared.send_clock import SendClock
from hardware.teleop.device import NOTHING, Feedback, OperatorInput, Teleoperator
from hardware.teleop.drive import OperatorDrive
from hardware.teleop.hand_motion import USUAL_LIMITS, ToolLimits
from hardware.teleop.input_check import checked
from hardware.topics import (
    JOINT_STATES,
    RECORDER_REQUEST,
    SAFE,
    TELEOP,
    TELEOP_FAULT,
    TELEOP_JOINTS,
)
from robo_rl.core.errors import DriverError
from robo_rl.core.shapes import Float

RATE_HZ = 50.0
FRESH_S = 0.1  # oldest joint_states with which the arm may be moved


def print_line(sentence: str) -> None:
    print(f"teleop: {sentence}", file=sys.stderr, flush=True)


class TeleopNode:
    """Reads the connected device at 50 Hz, and lets go of the arm in the tick in which it fails.

    joints: names of those that the operator drives while a policy drives the others; empty: all.
    """

    def __init__(
        self,
        bus: Bus,
        device: Teleoperator,
        robot: RobotDescription,
        say: Callable[[str], None] = print_line,
        limits: ToolLimits = USUAL_LIMITS,
        joints: Sequence[str] = (),
    ) -> None:
        self._bus, self._device, self._robot, self._say = bus, device, robot, say
        self._drive = OperatorDrive(robot, limits, joints)
        self._measured_rad: Float[ndarray, " j"] | None = None
        self._sent_rad: Float[ndarray, " j"] | None = None
        self._seen_s = -np.inf
        self._clock = SendClock(bus)
        self._reported, self._gone, self._closed = "", False, False
        self._let_go = True  # the switch was released since it was last taken away
        self._send, self._flag = TELEOP.publisher(bus), InterventionFlag(bus)
        self._request, self._fault = RECORDER_REQUEST.publisher(bus), TELEOP_FAULT.publisher(bus)
        JOINT_STATES.subscribe(bus, self._on_state)
        SAFE.subscribe(bus, self._on_safe)
        bus.timer(1.0 / RATE_HZ, self._tick)
        if joints:
            TELEOP_JOINTS.publisher(bus)(Text("+".join(joints)))

    def stop(self, why: str) -> str:
        """End the intervention."""
        was, self._gone = self._flag.on, True
        self._release()
        return f"{why}: {'let go of the arm' if was else 'nothing was held'}"

    @property
    def at_rest(self) -> bool:
        return not self._flag.on

    def finish(self) -> None:
        """End the intervention and close the device."""
        self._flag.set(False)
        if not self._closed:
            self._closed = True
            self._device.close()

    def _on_state(self, message: JointState, received_s: float) -> None:
        measured_rad = self._ordered(message.names, message.position_rad)
        if measured_rad is not None:
            self._measured_rad, self._seen_s = measured_rad, received_s

    def _on_safe(self, message: JointTrajectory, received_s: float) -> None:
        if len(message.position_rad):
            sent_rad = self._ordered(message.names, message.position_rad[-1])
            self._sent_rad = self._sent_rad if sent_rad is None else sent_rad

    def _ordered(self, names: Sequence[str], values: Float[ndarray, " n"]) -> Float[ndarray, " j"] | None:
        """Finite values in the order of the description; None where there are none for every joint."""
        if len(names) != len(values) or not set(self._robot.names) <= set(names):
            return None
        ordered: Float[ndarray, " j"] = np.asarray(values)[[names.index(n) for n in self._robot.names]]
        return ordered if np.isfinite(ordered).all() else None

    def _tick(self) -> None:
        operator, measured_rad = self._read_device(), self._measured_rad
        if operator.recorder_request:
            self._request(Text(operator.recorder_request))
        if self._flag.was_ended():
            self._say("Another program ended the intervention. Release the switch, then press it again.")
            self._let_go = False
        self._let_go = self._let_go or not operator.held
        stale = measured_rad is None or self._bus.now() - self._seen_s > FRESH_S
        if not operator.held or not self._let_go or stale:
            self._release()
        else:
            assert measured_rad is not None
            self._move(operator, measured_rad)
        self._feed_back()

    def _move(self, operator: OperatorInput, measured_rad: Float[ndarray, " j"]) -> None:
        period_s = 1.0 / RATE_HZ
        target_rad = self._drive.next(operator, measured_rad, self._sent_rad, period_s)
        if target_rad is None:
            self._complain_once(self._drive.fault)
            return
        self._flag.set(True)
        if self._reported:
            self._reported = ""
            self._report("")
        times_s, robot = np.array([period_s]), self._robot
        self._send(
            JointTrajectory(self._clock.stamp(), robot.names, target_rad[None], times_s, robot.frame_id)
        )

    def _read_device(self) -> OperatorInput:
        """Input of the device; released where it is gone or makes no sense."""
        if self._gone:
            return NOTHING
        try:
            operator, fault = checked(self._device.get_action(self._bus.now()), self._robot)
        except DriverError as error:
            self._lose(str(error))
            return NOTHING
        except Exception as error:  # a device of another package may raise anything
            self._lose(f"The device failed ({type(error).__name__}: {error}). Start teleoperation again.")
            return NOTHING
        if fault:
            self._complain_once(f"The device's input is not followed: {fault}.")
        return operator

    def _feed_back(self) -> None:
        if self._gone:
            return
        try:
            self._device.send_feedback(Feedback(self._flag.on, self._drive.slowed, self._measured_rad))
        except Exception as error:
            self._lose(f"The device failed ({type(error).__name__}: {error}). Start teleoperation again.")
            self._release()

    def _lose(self, sentence: str) -> None:
        self._gone = True
        self._report(sentence)

    def _complain_once(self, sentence: str) -> None:
        """Report a fault, and not again until another one, or until the arm was driven."""
        key = sentence.split(":")[0]
        if sentence and key != self._reported:
            self._report(sentence)
        self._reported = key if sentence else self._reported

    def _report(self, sentence: str) -> None:
        """Send a fault to the terminal and the recording page; an empty one, for the page alone, ends it."""
        if sentence:
            self._say(sentence)
        self._fault(Text(sentence))

    def _release(self) -> None:
        self._drive.release()
        self._flag.set(False)
