"""Flies a bundle that commands velocities from pictures and words, over a link that takes body rates."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Answer, Bus
from hardware.loop.decision_clock import DecisionClock
from hardware.loop.flight_observation import CameraFlightObserver
from hardware.loop.inference import Inference
from hardware.loop.observation import ObservationHistory, Seen
from hardware.loop.timing import LoopTiming
from hardware.loop.velocity_plan import VelocityPlan
from hardware.messages import RATES, FlightCommand, Odometry, Text
from hardware.nodes.shared.chunk_requests import POLL_S, ChunkRequests
from hardware.nodes.shared.decision_rate import DecisionRate
from hardware.nodes.shared.fault_log import FaultLog
from hardware.nodes.shared.filter_watch import FilterWatch
from hardware.nodes.shared.instruction_source import InstructionSource
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.pictures import STALE_PICTURE_PERIODS, NewestPictures, PictureSettings
from hardware.nodes.shared.send_clock import SendClock
from hardware.safety.flight_limits import is_state
from hardware.safety.frames import Frames
from hardware.topics import FLIGHT_RAW, METADATA, ODOM, POLICY_STATUS
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Float

LINK_S = 0.01  # period of the velocity loop at the usual rate of a link
_STATUS_S = 0.5
_CLIMB_M_S, _BELOW_M = 0.4, 0.2  # climb to the take-off height; how far below it a craft climbs first
_SETTLE_S = 0.5
_SLOW = 3.0  # times the expected time of a climb after which it has failed


@runtime_checkable
class VelocityLoop(Protocol):
    """Velocity controller of a craft."""

    def __call__(self, state: Odometry, wanted: Float[ndarray, " 4"]) -> Float[ndarray, " 4"]:
        """Thrust [weights] and body rates [rad/s] for a velocity [m/s] forward, left and up in level axes
        along the heading, and a yaw rate [rad/s].
        """
        ...


class VelocityPolicyNode:
    """`odom`, `task` and pictures in; thrust and body rates on `flight/raw` out, one command for each state.

    While the filter passes commands, a chunk of velocities is inferred every `bundle.execute` control
    periods, in a process of its own, and the velocity loop follows it at the rate of `odom`. A flight begins
    once inference is ready and a first observation is complete; before, nothing is sent. Without a new chunk
    (stale pictures, no instruction, a dead process or server, an inference longer than its chunk) the craft
    stops in the air for `velocity_plan.BRAKE_S`, then commands end and the filter lands. A flight that begins
    more than 0.2 m below `takeoff_m` first climbs to it; 0 leaves that out. hover: thrust 0 to 1 at which the
    craft hovers. pictures: with an age of None, 3 control periods.
    """

    def __init__(
        self, bus: Bus, bundle: Bundle, inference: Inference, loop: VelocityLoop, hover: float,
        pictures: PictureSettings, takeoff_m: float = 0.0, start: bool = True,
        say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        self._bus, self._bundle, self._inference, self._loop = bus, bundle, inference, loop
        self.requests = ChunkRequests(bus, inference, bundle.execute, "deciding")
        self._hover, self._takeoff_m, self._enabled = hover, takeoff_m, start
        self._observer = CameraFlightObserver(bundle.env.obs)
        self._history = ObservationHistory(bundle.obs_steps)
        # after new words the next decision asks for a chunk that follows them
        self._instruction = InstructionSource(
            bus, bundle, self._observer.reads_words, say, self.requests.request_now
        )
        period_s = 1.0 / bundle.env.control_hz
        age_s = STALE_PICTURE_PERIODS * period_s if pictures.age_s is None else pictures.age_s
        pictures = replace(pictures, age_s=age_s)
        self._pictures = NewestPictures(bus, None, self._observer.pictures, pictures)
        self._plan, self._due = VelocityPlan(period_s), DecisionClock(period_s)
        self._rate = DecisionRate(bus.name, bundle.env.control_hz, say)
        self.timing = LoopTiming(LINK_S)
        self._filter, self._frames, self._clock = FilterWatch(bus), Frames(), SendClock(bus)
        self._flies = self._sent = False  # in a flight; a command of it was sent
        self._settled_s = -math.inf  # after a reset, missing pictures are no fault before this time
        self._climb_s: float | None = None  # start of the climb; None: no climb, or it is over
        self._faults, self._bad_frames = FaultLog(bus.name, say), ""
        self._send, self._own = FLIGHT_RAW.publisher(bus), OwnStatus(bus, POLICY_STATUS)
        METADATA.publisher(bus)(Text(json.dumps(bundle.manifest)))
        ODOM.subscribe(bus, self._on_state)
        for name, callback in (("~/start", self._start), ("~/stop", self._stop), ("~/reset", self._reset)):
            bus.service(name, callback)
        bus.timer(POLL_S, self._poll)
        bus.timer(_STATUS_S, self._report)

    @property
    def ready(self) -> bool:
        """True when the inference process can answer."""
        return self.requests.ready

    @property
    def fault(self) -> str:
        """Why inference has ended; empty while it works."""
        return self.requests.fault

    def stop(self, why: str) -> str:
        """Stop deciding: the filter lands. Reports an earlier reason for landing as well."""
        self._enabled = False
        self._own.leave(why)
        self._report()
        before = f"; {self._filter.reason}" if self._filter.reason else ""
        return f"{why}: {self.requests.summary}{before}"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """End the inference process; the filter lands the craft."""
        self._inference.close()

    def _on_state(self, message: Odometry, received_s: float) -> None:
        due = self._due.decides(received_s)
        self._rate.see(received_s, due)
        self._bad_frames = self._frames.fault(message, may_change=not self._filter.passes)
        if self._bad_frames or not is_state(message):
            return None  # the filter, which lands for it, says it in the terminal
        self._frames.take(message)
        if not (self._enabled and self._filter.passes):
            self._flies = self._sent = False
            return None
        self.timing.begin(self._bus.now())
        if due:
            self._decide_or_wait(message, received_s)
        wanted = self._wanted(message, received_s) if self._flies else None
        if wanted is not None:
            self._follow(message, wanted)
        return self.timing.end(self._bus.now())

    def _wanted(self, message: Odometry, received_s: float) -> Float[ndarray, " 4"] | None:
        """Velocity of this moment: of the climb, or of the plan."""
        if self._climb_s is None:
            return self._plan.at(received_s)
        if self.requests.fault:
            return None  # the filter lands
        if message.position_m[2] >= self._takeoff_m:
            self._climb_s = None
            self._plan.hover(received_s)  # until the first chunk comes
            return self._plan.at(received_s)
        if received_s - self._climb_s > _SLOW * self._takeoff_m / _CLIMB_M_S:
            self._faults.begin(
                f"the craft has not reached takeoff={self._takeoff_m:g} m in time: see that hover= is the "
                "thrust at which it hovers",
                received_s,
            )
            return None  # the filter lands
        return np.array([0.0, 0.0, _CLIMB_M_S, 0.0])

    def _decide_or_wait(self, message: Odometry, received_s: float) -> None:
        """Decide, or begin a flight, if there is all that a decision needs; what it lacks is reported."""
        if not self.requests.ready:
            return
        if self._instruction.waits_for:
            return self._faults.end(self._bus.now())  # of an earlier instruction
        try:
            seen = self._observer.build(message, self._pictures.fresh(), self._instruction.followed())
        except DataError as error:
            if received_s >= self._settled_s:
                self._faults.begin(str(error), self._bus.now())
            return None
        if not self._flies:
            self._begin_episode()
            self._flies = True
            below = message.position_m[2] < self._takeoff_m - _BELOW_M
            self._climb_s = received_s if below else None
        if self._climb_s is None:
            self._faults.end(self._bus.now())
            self._decide(seen, received_s)
        return None

    def _begin_episode(self) -> None:
        """Forget what was seen; a craft that is being commanded stops in the air until the next chunk."""
        self.requests.begin_episode()
        self._history.reset()
        if self._flies and self._sent:
            self._plan.hover(self._bus.now())
        else:
            self._plan.reset()

    def _decide(self, seen: Seen, received_s: float) -> None:
        """Add an observation, and request a chunk when it is time. Once per control period."""
        self._history.push(seen)
        if self.requests.tick():
            self.requests.request(self._history.stacked(), received_s)

    def _follow(self, message: Odometry, wanted: Float[ndarray, " 4"]) -> None:
        """Send thrust and body rates for a velocity."""
        values = self._loop(message, wanted)
        values[0] *= self._hover  # the filter limits it
        self._send(FlightCommand(self._clock.stamp(), values, RATES))
        self._sent = True

    def _poll(self) -> None:
        answer = self.requests.poll()
        if self.requests.fault:
            return self._faults.begin(self.requests.fault, self._bus.now())
        if answer is None or not self._enabled:
            return None
        chunk, state_s = answer
        if not np.isfinite(chunk).all():
            return self._faults.begin("the policy gave numbers that are not finite", self._bus.now())
        if self._bus.now() - state_s >= len(chunk) / self._bundle.env.control_hz:
            return self._faults.begin("an inference takes longer than its chunk lasts", self._bus.now())
        action = self._bundle.env.action
        return self._plan.take(np.clip(chunk, action.low, action.high), state_s)

    def _start(self) -> Answer:
        if self.requests.fault:
            return False, f"not started: {self.requests.fault}"
        self._enabled = True
        self._begin_episode()
        return True, self.requests.start_word + self._filter.hint

    def _stop(self) -> Answer:
        self._enabled = False
        self._plan.reset()
        self._faults.end(self._bus.now())  # no longer looked for
        return True, "stopped: the filter lands"

    def _reset(self) -> Answer:
        self._begin_episode()
        self._pictures.forget()  # of another place or time
        self._settled_s = self._bus.now() + _SETTLE_S
        return True, f"episode {self.requests.episode}: what was seen is forgotten"

    def _report(self) -> None:
        slow = self._rate.fault(self._bus.now())
        waits_for = (
            self._instruction.waits_for if self._enabled else ""
        )  # also before a flight, and while it loads
        wrong = self._bad_frames or self._faults.present or waits_for or slow
        level, sentence, values = self.requests.status(self._enabled, wrong, self._instruction.remark())
        self._own.tell(level, sentence, values | self._rate.values)
