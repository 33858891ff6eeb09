"""The node that infers: observations in, chunks of waypoints out, as slowly as the policy needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Answer, Bus
from hardware.description import RobotDescription
from hardware.layout import action_joints
from hardware.loop.chunk_acceptance import horizon_fault
from hardware.loop.heartbeat import HEARTBEAT_S
from hardware.loop.inference import Inference
from hardware.loop.observation import ArmObserver, ObservationHistory
from hardware.loop.plan import RunningPlan
from hardware.messages import Flag, Floats, JointState, JointTrajectory, Text
from hardware.nodes.shared.chunk_requests import POLL_S, ChunkRequests
from hardware.nodes.shared.fault_log import FaultLog
from hardware.nodes.shared.filter_watch import FilterWatch
from hardware.nodes.shared.instruction_source import InstructionSource
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.pictures import USUAL, NewestPictures, PictureSettings
from hardware.safety.timing import STALE_STATE_PERIODS
from hardware.topics import CHUNK, GOAL, HEARTBEAT, JOINT_STATES, METADATA, POLICY_STATUS
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.shapes import Float

STALE = "the robot's state is stale, so the policy is not asked"
NO_GOAL = "waits for the topic 'goal': no goal has been published"
SINGLE = "single actions are decided by action_head"
_STATUS_S = 0.5


class ArmPolicyNode:
    """`joint_states`, `goal`, `task`, pictures in; `policy/chunk` out, a new one every `bundle.execute`
    control periods, and `policy/heartbeat`, until ~/stop, the node ends or its inference has died.

    No inference on a state older than 3 periods, or on a picture older than `pictures.age_s`, or for words
    that are no instruction or of which the policy knows none. Without the topic `task`, the instruction is
    the bundle's own.
    """

    def __init__(
        self, bus: Bus, bundle: Bundle, robot: RobotDescription, inference: Inference, start: bool = False,
        say: Callable[[str], None] = print, realtime: bool = False,
        pictures: PictureSettings = USUAL,
    ) -> None:  # fmt: skip
        self._bus, self._bundle, self._robot, self._inference = bus, bundle, robot, inference
        self.requests = ChunkRequests(bus, inference, bundle.execute, "inferring")
        self._joints, self._names = named_joints(bundle), frozenset(robot.names)
        self._observer = ArmObserver(bundle.env.obs, words=True)
        self._history = ObservationHistory(bundle.obs_steps)
        # after new words the next tick asks for a chunk that follows them
        self._instruction = InstructionSource(
            bus, bundle, self._observer.reads_words, say, self.requests.request_now
        )
        self._enabled, self._filter = start, FilterWatch(bus)
        self._state: tuple[JointState, float] | None = None
        self._pictures = NewestPictures(bus, robot, self._observer.pictures, pictures)
        self._goal: Float[ndarray, " g"] | None = None
        self._plan, self._realtime = RunningPlan(1.0 / bundle.env.control_hz), realtime
        self._faults, self._waits_for = FaultLog(bus.name, say), ""
        self._send, self._own = CHUNK.publisher(bus), OwnStatus(bus, POLICY_STATUS, hardware_id=robot.name)
        self._beat, self._alive = HEARTBEAT.publisher(bus), True
        METADATA.publisher(bus)(Text(json.dumps(bundle.manifest)))
        JOINT_STATES.subscribe(bus, self._on_state)
        GOAL.subscribe(bus, self._on_goal)
        for name, callback in (("~/start", self._start), ("~/stop", self._stop), ("~/reset", self._reset)):
            bus.service(name, callback)
        bus.timer(1.0 / bundle.env.control_hz, self._tick)
        bus.timer(POLL_S, self._poll)
        bus.timer(HEARTBEAT_S, self._send_heartbeat)
        bus.timer(_STATUS_S, self._report)

    @property
    def infers(self) -> bool:
        """True while the inference process is ready and inference is not stopped."""
        return self._enabled and self.requests.ready

    @property
    def fault(self) -> str:
        """Why inference has ended; empty while it works."""
        return self.requests.fault

    def stop(self, why: str) -> str:
        """Stop inference."""
        self._enabled = False
        self._end_heartbeat()
        self._own.leave(why)
        self._report()
        return f"{why}: {self.requests.summary}"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """End the inference process."""
        self._inference.close()

    def _on_state(self, message: JointState, received_s: float) -> None:
        if self._state is None or self._names <= set(
            message.names
        ):  # else a gripper's state, which shares the topic
            # A robot without stamps: the time of receipt, as action_head takes it.
            self._state = replace(message, stamp_s=message.stamp_s or self._bus.stamp()), received_s

    def _on_goal(self, message: Floats, received_s: float) -> None:
        self._goal = np.asarray(message.values)

    def _start(self) -> Answer:
        if self.requests.fault:
            return False, f"not started: {self.requests.fault}"
        self._enabled = self._alive = True
        return True, self.requests.start_word + self._filter.hint

    def _stop(self) -> Answer:
        """End inference, and the chunk that the head plays, until ~/start."""
        if self._bundle.chunk == 1:
            return False, f"not stopped: {SINGLE}; call its ~/stop"
        self._enabled = False
        self.requests.request_now()
        self._history.reset()
        self._plan.reset()
        self._end_heartbeat()
        self._waits_for = ""  # no longer looked for
        self._faults.end(self._bus.now())
        return True, "stopped"

    def _reset(self) -> Answer:
        self.requests.begin_episode()
        self._history.reset()
        self._plan.reset()
        return True, f"episode {self.requests.episode}"

    def _tick(self) -> None:
        """Add an observation, and request a chunk when it is time. Once per control period."""
        if self._bundle.chunk == 1:
            self._waits_for = f"{SINGLE}: give it the same bundle"
            return
        if self._state is None or not self._enabled or self.requests.fault:
            return
        message, received_s = self._state
        if self._bus.now() - received_s > STALE_STATE_PERIODS / self._robot.state_hz:
            return self._faults.begin(STALE, self._bus.now())
        no_goal = self._observer.goal_size and self._goal is None
        self._waits_for = NO_GOAL if no_goal else self._instruction.waits_for
        if self._waits_for:
            return self._faults.end(self._bus.now())  # of an earlier instruction
        try:
            seen = self._observer.build(
                message, self._pictures.fresh(), self._goal, self._instruction.followed()
            )
            self._history.push(seen)
        except DataError as error:
            return self._faults.begin(str(error), self._bus.now())
        self._faults.end(self._bus.now())
        self._plan.tick()
        if self.requests.tick():
            self._request_chunk(message.stamp_s)
        return None

    def _request_chunk(self, stamp_s: float) -> None:
        """Request a chunk that begins at the newest state; repeated at the next tick while an answer is
        pending.
        """
        running = self._plan.running() if self._realtime else None
        if self.requests.request(self._history.stacked(), stamp_s, running):
            self._plan.asked(self._bus.now())

    def _poll(self) -> None:
        answer = self.requests.poll()
        if self.requests.fault:
            self._end_heartbeat()
            return self._faults.begin(self.requests.fault, self._bus.now())
        if answer is not None and self._enabled:
            chunk, stamp_s = answer
            self._plan.answered(chunk, self._bus.now())
            times_s = np.arange(1, len(chunk) + 1) / self._bundle.env.control_hz
            waypoints = chunk.astype(np.float64)
            self._send(JointTrajectory(stamp_s, self._joints, waypoints, times_s, self._robot.frame_id))
        return None

    def _send_heartbeat(self) -> None:
        if self._alive:
            self._beat(Flag(True))

    def _end_heartbeat(self) -> None:
        """Tell the head at once that no more chunks come."""
        if self._alive:
            self._alive = False
            self._beat(Flag(False))

    def _report(self) -> None:
        wrong, remark = self._faults.present or self._waits_for, self._instruction.remark()
        level, sentence, values = self.requests.status(self._enabled, wrong, remark)
        self._own.tell(level, sentence, values | {"episode": str(self.requests.episode)})


def named_joints(bundle: Bundle) -> tuple[str, ...]:
    """Joints that the bundle commands.

    Raises CheckpointError for a bundle that does not name them, or whose chunks are too long.
    """
    joints = action_joints(bundle.env.action.unit)
    if len(joints) != bundle.env.action.dim:
        raise CheckpointError(
            f"The bundle {bundle.folder} was made for {bundle.env.name}, whose actions are "
            f"'{bundle.env.action.unit}', not named joint positions in rad. It cannot drive an arm; train on "
            "an environment such as arm6/reach."
        )
    if fault := horizon_fault(bundle.chunk, bundle.chunk / bundle.env.control_hz):
        raise CheckpointError(f"A chunk of the bundle {bundle.folder} cannot be played: {fault}.")
    return joints
