"""The node that commands at the robot's rate: it plays chunks, corrects them, or decides by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Answer, Bus
from hardware.description import RobotDescription
from hardware.loop.head import ActionHead
from hardware.loop.head_networks import decider
from hardware.loop.heartbeat import HEARTBEAT_S
from hardware.loop.observation import ArmObserver
from hardware.messages import Flag, Floats, JointState, JointTrajectory
from hardware.nodes.arm_policy import named_joints
from hardware.nodes.shared.dropped import DropReporter
from hardware.nodes.shared.fault_log import FaultLog
from hardware.nodes.shared.filter_watch import FilterWatch
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.pictures import USUAL, NewestPictures, PictureSettings
from hardware.nodes.shared.send_clock import SendClock
from hardware.topics import CHUNK, GOAL, HEARTBEAT, INTERVENTION, JOINT_STATES, LOOP_STATUS, RAW
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Float

_STATUS_S = 0.5
_LOOK_S = HEARTBEAT_S / 2  # period of the look at the policy's heartbeat
MISSING = "the policy's heartbeat is missing, so its chunk is not played"


class ActionHeadNode:
    """`policy/chunk` and `joint_states` in, `command/raw` out, one waypoint per command period.

    A head with pictures in its observation sends no command when one is older than `pictures.age_s`. When the
    policy whose chunk it plays is gone, it asks the filter for a hold, by a trajectory without waypoints.
    heartbeat_s: see `ActionHead`.
    """

    def __init__(
        self, bus: Bus, robot: RobotDescription, bundle: Bundle | None = None, start: bool = True,
        say: Callable[[str], None] = print, pictures: PictureSettings = USUAL,
        heartbeat_s: float | None = None,
    ) -> None:  # fmt: skip
        decide = None if bundle is None else decider(bundle)
        self._observer = None if bundle is None or decide is None else ArmObserver(bundle.env.obs)
        steps = 1 if bundle is None else bundle.obs_steps
        self._joints = robot.names if bundle is None else named_joints(bundle)
        periods_s = 1.0 / robot.command_hz, 1.0 / robot.state_hz
        control_s = None if bundle is None else 1.0 / bundle.env.control_hz
        speed_rad_s = robot.column("velocity_rad_s")[[robot.names.index(name) for name in self._joints]]
        self.head = ActionHead(*periods_s, decide, steps, self._joints, heartbeat_s, control_s, speed_rad_s)
        self._bus, self._enabled, self._filter = bus, start, FilterWatch(bus)
        self._period_s = np.array([1.0 / robot.command_hz])
        self._names, self._received_all = frozenset(robot.names), False
        shown = () if self._observer is None else self._observer.pictures
        self._pictures = NewestPictures(bus, robot, shown, pictures)
        self._goal: Float[ndarray, " g"] | None = None
        self._clock, self._frame, self._faults = SendClock(bus), robot.frame_id, FaultLog(bus.name, say)
        self._drops, self._policy_faults = DropReporter(bus.name, say), FaultLog(bus.name, say)
        self._playing = self._policy_gone = False  # a command was sent in the newest tick; the policy is gone
        self._human = False  # drives the arm
        self._followed = False  # the arm has followed commands of this episode
        self._send, self._own = RAW.publisher(bus), OwnStatus(bus, LOOP_STATUS, hardware_id=robot.name)
        JOINT_STATES.subscribe(bus, self._on_state)
        CHUNK.subscribe(bus, self._on_chunk)
        if self.head.needs_chunks:
            HEARTBEAT.subscribe(bus, self._on_heartbeat)
            bus.timer(_LOOK_S, self._watch_policy)
        GOAL.subscribe(bus, self._on_goal)
        INTERVENTION.subscribe(bus, self._on_intervention)
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

    def finish(self) -> None:
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
        self.head.on_state(message.stamp_s or self._bus.stamp(), seen, received_s, self._position_of(message))

    def _position_of(self, message: JointState) -> Float[ndarray, " j"] | None:
        """Measured position of the joints that are commanded; None if the state lacks one."""
        if not set(self._joints) <= set(message.names):
            return None
        return message.position_rad[[message.names.index(name) for name in self._joints]]

    def _on_chunk(self, message: JointTrajectory, received_s: float) -> None:
        self._policy_gone &= not self.head.on_chunk(message, received_s)
        self._drops.tell_sentence("policy/chunk", self.head.refused, received_s)

    def _on_heartbeat(self, message: Flag, received_s: float) -> None:
        self._policy_gone = not message.on
        self.head.on_heartbeat(message.on, received_s)
        self._watch_policy()

    def _watch_policy(self) -> None:
        """Ask the filter for a hold when the policy whose chunk is played is gone."""
        now_s = self._bus.now()
        self._policy_gone |= self.head.policy_is_missing(now_s)
        if not self._policy_gone:
            return self._policy_faults.end(now_s)
        self._policy_faults.begin(MISSING, now_s)
        if self._playing:
            self._playing = False
            self._command(np.zeros((0, len(self._joints))), np.zeros(0))
        return None

    def _on_goal(self, message: Floats, received_s: float) -> None:
        self._goal = np.asarray(message.values)

    def _on_intervention(self, message: Flag, received_s: float) -> None:
        self._human = message.on

    def _start(self) -> Answer:
        self._enabled = True
        return True, f"commanding{self._filter.hint}"

    def _stop(self) -> Answer:
        self._enabled = False
        return True, "stopped"

    def _reset(self) -> Answer:
        self._followed = False  # a new episode begins near the arm
        self.head.reset()
        return True, f"episode {self.head.episode}"

    def _tick(self) -> None:
        self._watch_policy()
        command = self.head.tick(self._bus.now())
        self._playing = command is not None and self._enabled
        if command is not None and self._enabled:
            self._command(np.asarray(command, dtype=np.float64)[None], self._period_s)
        self._note_what_was_followed()
        self.head.done(self._bus.now())

    def _note_what_was_followed(self) -> None:
        """Begin again at the arm where it does not follow.

        A policy that it followed before a hold catches up. At a start, the safety filter may drop what is far
        from the arm.
        """
        if not self._enabled or self._human or self._filter.reason:
            self._followed = False
            self.head.restart()
        elif self._filter.holds:
            self.head.restart(catches_up=self._followed)
        elif self._playing:
            self._followed = self._filter.passes

    def _command(self, position_rad: Float[ndarray, "k j"], times_s: Float[ndarray, " k"]) -> None:
        stamp_s = self._clock.stamp()
        self._send(JointTrajectory(stamp_s, self._joints, position_rad, times_s, self._frame))

    def _report(self) -> None:
        fault = self._faults.present or self._policy_faults.present
        level = 0 if self._enabled and not fault else 1
        sentence = fault or ("commanding" if self._enabled else "stopped")
        values = self.head.timing.values() | {"late_chunks": str(self.head.player.late)}
        self._own.tell(level, sentence, values)
