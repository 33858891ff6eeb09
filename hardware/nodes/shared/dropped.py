"""Reports dropped commands in the terminal, so that a robot that does not move has a visible reason."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.messages import JointTrajectory
from hardware.safety.message_parsing import read_command
from hardware.safety.reasons import Reason
from robo_rl.core.shapes import Float

AGAIN_S = 5.0  # interval between two reports
# Reasons of a filter that is not armed, or of a human in control: its status shows these.
EXPECTED = (Reason.NOT_ARMED, Reason.OUTRANKED)


def jump_words(
    robot: RobotDescription, message: JointTrajectory, measured_rad: Float[ndarray, " j"] | None
) -> str:
    """Sentences on the joint that a first command would move furthest, beside the gripper; empty without a
    command or a measurement.
    """
    position = read_command(message, robot.names)
    if isinstance(position, Reason) or measured_rad is None:
        return ""
    i = int(np.argmax(np.where(robot.is_gripper, -1.0, np.abs(position - measured_rad))))
    return (
        f"Joint {robot.names[i]}: command {position[i]:.2f} rad, arm {measured_rad[i]:.2f} rad, limit "
        f"start_jump_rad={robot.start_jump_rad:g}. Move the arm to where the demonstrations start, or raise "
        "start_jump_rad"
    )


class DropReporter:
    """Reports why a command was dropped, the first time and then every 5 s."""

    def __init__(self, node: str, say: Callable[[str], None]) -> None:
        self._node, self._say, self._said_s = node, say, -math.inf

    def tell(self, source: str, reason: Reason | None, now_s: float, numbers: str = "") -> None:
        """Report a dropped command. source: its sender. numbers: further sentences, without their end."""
        if reason is not None and reason not in EXPECTED:
            sentence = f"{reason.sentence}. {numbers}" if numbers else reason.sentence
            self.tell_sentence(f"what {source} sends", sentence, now_s)

    def tell_sentence(self, what: str, sentence: str, now_s: float) -> None:
        """Report that `what` is dropped, and why; nothing for an empty sentence."""
        if not sentence or now_s - self._said_s <= AGAIN_S:
            return
        self._said_s = now_s
        self._say(f"{self._node}: {what} is dropped: {sentence}.")
