"""Commands of two senders at once: a human drives some joints, the policy the others."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.messages import JointTrajectory
from hardware.safety.command_acceptance import CommandAcceptance, Source, new_orders
from hardware.safety.limits import Target
from hardware.safety.reasons import Reason
from robo_rl.core.shapes import Bool, Float

Joints = Float[ndarray, " j"]
SOURCES: tuple[Source, ...] = ("policy", "teleop")


class SharedCommands:
    """Newest accepted command of the one sender in command, or of each of the two senders of shared control.

    Promises:
    - without joints for the human, all of `CommandAcceptance`;
    - with them, they are moved by commands of teleoperation alone, during an intervention; the policy moves
      the others, whether a human intervenes or not;
    - every command fulfils the promises of `CommandAcceptance`; a jump at the start is one of the sender's
      own joints;
    - each sender's loss holds its joints, and leaves those of the other alone.
    """

    def __init__(self, robot: RobotDescription, look_s: float) -> None:
        self._robot, self._look_s, self._orders = robot, look_s, new_orders()
        self._one = CommandAcceptance(robot, look_s, self._orders)
        self._human: Bool[ndarray, " j"] = np.zeros(len(robot.names), bool)
        self._parts: dict[Source, CommandAcceptance] = {}  # empty without shared control

    @property
    def source(self) -> Source:
        """Sender in command of all joints: a human who has taken over, else the policy."""
        return self._one.source

    @property
    def shared(self) -> bool:
        """True while joints are reserved for the human."""
        return bool(self._parts)

    def share(self, human: Bool[ndarray, " j"]) -> None:
        """Reserve these joints for the human; none ends shared control. All begin from where the arm is."""
        if (human == self._human).all():
            return
        self._human, intervening = human.copy(), self.source == "teleop"
        self._parts = {}
        if human.any():
            joints: dict[Source, Bool[ndarray, " j"]] = {"policy": ~human, "teleop": human}
            for source, moved in joints.items():
                self._parts[source] = CommandAcceptance(self._robot, self._look_s, self._orders, moved)
            self._parts["teleop"].intervene(intervening)
        self._one.begin()

    @property
    def own_joints(self) -> Bool[ndarray, " j"]:
        """Joints that a human drives during an intervention."""
        return self._human if self._parts else np.ones(len(self._human), bool)

    def drives(self, source: Source) -> bool:
        """True if commands of this sender are followed now."""
        if not self._parts:
            return source == self.source
        return not self._human.all() if source == "policy" else self.source == "teleop"

    def leads(self, source: Source) -> bool:
        """True if this sender's commands set the time at which the robot is sent one."""
        return not self._parts or source == "policy" or self._parts["policy"].target is None

    def intervene(self, begins: bool) -> None:
        """Give command to the human, or back to the policy. The next sender begins from where the arm is."""
        self._one.intervene(begins)
        if self._parts:
            self._parts["teleop"].intervene(begins)

    def restart(self) -> None:
        """Accept any first command, as after arming."""
        for part in self._active():
            part.restart()

    def forget_stamps(self) -> None:
        """Accept any stamp next, as after a clock was set back."""
        self._one.forget_stamps()

    def take(
        self, message: JointTrajectory, source: Source, received_s: float, measured_rad: Joints | None
    ) -> Reason | None:
        """Accept a command, or return why it is dropped. measured_rad: None while the filter is not armed."""
        if not self._parts:
            return self._one.take(message, source, received_s, measured_rad)
        if measured_rad is not None and not self.drives(source):
            return Reason.OUTRANKED if source == "policy" else Reason.NOT_INTERVENING
        return self._parts[source].take(message, source, received_s, measured_rad)

    def is_fresh(self, now_s: float) -> bool:
        """True while a command may be followed; what has grown stale is forgotten."""
        fresh = False
        for part in self._active():
            if part.is_fresh(now_s):
                fresh = True
            else:
                part.expire()
        return fresh

    @property
    def target(self) -> Target | None:
        """Target of all joints; None where no command is followed."""
        if not self._parts:
            return self._one.target
        targets = [(source, part.target) for source, part in self._parts.items()]
        joints = len(self._robot.names)
        place, speed, followed = np.zeros(joints), np.zeros(joints), np.zeros(joints, bool)
        for source, target in targets:
            if target is not None:
                own = self._human if source == "teleop" else ~self._human
                place, speed = (
                    np.where(own, target.position_rad, place),
                    np.where(own, target.speed_rad_s, speed),
                )
                followed |= own
        return Target(place, speed, followed) if followed.any() else None

    @property
    def followed(self) -> tuple[Source, ...]:
        """Senders whose commands are followed."""
        if not self._parts:
            return (self.source,) if self._one.target is not None else ()
        return tuple(source for source, part in self._parts.items() if part.target is not None)

    @property
    def received_any(self) -> bool:
        """True once a command was accepted since arming or the last takeover."""
        return any(part.received_any for part in self._active())

    @property
    def hold_requested(self) -> bool:
        """True if the newest message of a sender asked for a hold."""
        return any(part.hold_requested for part in self._active())

    def expire(self) -> None:
        """Forget the target: what has grown stale is never followed again."""
        for part in self._active():
            part.expire()

    def assume_still(self) -> None:
        """Take the target as standing still until the next command says otherwise."""
        for part in self._active():
            part.assume_still()

    def dropped_unarmed_lately(self, now_s: float) -> bool:
        """True when a command of a sender in command was dropped just now because nothing was armed."""
        return any(part.dropped_unarmed_lately(now_s) for part in self._active())

    def _active(self) -> tuple[CommandAcceptance, ...]:
        return tuple(self._parts.values()) or (self._one,)
