"""The node that commands at the robot's rate: it plays chunks, corrects them, or decides by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Answer, Bus
from hardware.description import RobotDescription
from hardware.loop.deciders import decider
from hardware.loop.head import ActionHead
from hardware.loop.observation import ArmObserver
from hardware.messages import Floats, JointState, JointTrajectory
from hardware.nodes.arm_policy import named_joints
from hardware.nodes.shared.dropped import DropTeller
from hardware.nodes.shared.fault_log import FaultLog
from hardware.nodes.shared.filter_watch import FilterWatch
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.pictures import USUAL, NewestPictures, PictureSettings
from hardware.nodes.shared.send_clock import SendClock
from hardware.topics import CHUNK, GOAL, JOINT_STATES, LOOP_STATUS, RAW
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Float

_STATUS_S = 0.5


class ActionHeadNode:
    """`policy/chunk` and `joint_states` in, `command/raw` out, one waypoint per command period.

    A head with pictures in its observation sends no command when one is older than `pictures.age_s`.
    """

    def __init__(
        self, bus: Bus, robot: RobotDescription, bundle: Bundle | None = None, start: bool = True,
        say: Callable[[str], None] = print, pictures: PictureSettings = USUAL,
    ) -> None:  # fmt: skip
        decide = None if bundle is None else decider(bundle)
        self._observer = None if bundle is None or decide is None else ArmObserver(bundle.env.obs)
        steps = 1 if bundle is None else bundle.obs_steps
        self._joints = robot.names if bundle is None else named_joints(bundle)
        periods_s = 1.0 / robot.command_hz, 1.0 / robot.state_hz
        self.head = ActionHead(*periods_s, decide, steps, self._joints)
        self._bus, self._enabled, self._filter = bus, start, FilterWatch(bus)
        self._period_s = np.array([1.0 / robot.command_hz])
        self._names, self._received_all = frozenset(robot.names), False
        shown = () if self._observer is None else self._observer.pictures
        self._pictures = NewestPictures(bus, robot, shown, pictures)
        self._goal: Float[ndarray, " g"] | None = None
        self._clock, self._frame, self._faults = SendClock(bus), robot.frame_id, FaultLog(bus.name, say)
        self._drops = DropTeller(bus.name, say)
        self._send, self._own = RAW.publisher(bus), OwnStatus(bus, LOOP_STATUS, hardware_id=robot.name)
        JOINT_STATES.subscribe(bus, self._on_state)
        CHUNK.subscribe(bus, self._on_chunk)
        GOAL.subscribe(bus, self._on_goal)
        for name, callback in (("~/start", self._start), ("~/stop", self._stop), ("~/reset", self._reset)):
            bus.service(name, callback)
        bus.timer(1.0 / robot.command_hz, self._tick)
        bus.timer(_STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Stop commanding."""
        self._enabled = False
        self._own.leave(why)
        self._report()
        return f"{why}: {self.head.timing}"

    @property
    def at_rest(self) -> bool:
        return True

    def last_word(self) -> None:
        """Do nothing: without commands the filter holds the robot."""

    def _on_state(self, message: JointState, received_s: float) -> None:
        whole = self._names <= set(message.names)
        if self._received_all and not whole:
            return  # a gripper's state, which shares the topic
        self._received_all, seen = whole, None
        if self._observer is not None and not (self._observer.goal_size and self._goal is None):
            try:
                seen = self._observer.build(message, self._pictures.fresh(), self._goal)
                self._faults.end(self._bus.now())
            except DataError as error:
                self._faults.begin(str(error), self._bus.now())
        # The state of a robot without stamps is stamped at its receipt, as arm_policy does.
        self.head.on_state(message.stamp_s or self._bus.stamp(), seen, received_s)

    def _on_chunk(self, message: JointTrajectory, received_s: float) -> None:
        self.head.on_chunk(message)
        self._drops.tell_sentence("policy/chunk", self.head.refused, received_s)

    def _on_goal(self, message: Floats, received_s: float) -> None:
        self._goal = np.asarray(message.values)

    def _start(self) -> Answer:
        self._enabled = True
        return True, f"commanding{self._filter.hint}"

    def _stop(self) -> Answer:
        self._enabled = False
        return True, "stopped"

    def _reset(self) -> Answer:
        self.head.reset()
        return True, f"episode {self.head.episode}"

    def _tick(self) -> None:
        command = self.head.tick(self._bus.now())
        if command is not None and self._enabled:
            position = np.asarray(command, dtype=np.float64)[None]
            stamp_s = self._clock.stamp()
            self._send(JointTrajectory(stamp_s, self._joints, position, self._period_s, self._frame))
        self.head.done(self._bus.now())

    def _report(self) -> None:
        level = 0 if self._enabled and not self._faults.present else 1
        sentence = self._faults.present or ("commanding" if self._enabled else "stopped")
        values = self.head.timing.values() | {"late_chunks": str(self.head.player.late)}
        self._own.tell(level, sentence, values)
