"""Flies a bundle: one decision per control period, from a new state of the estimator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy import ndarray

from hardware.bus.protocol import Answer, Bus
from hardware.flight_units import FlightUnits
from hardware.loop.decision_clock import DecisionClock
from hardware.loop.flight_observation import vehicle_state
from hardware.loop.flight_record import FlightRecord
from hardware.loop.timing import LoopTiming
from hardware.messages import MOTORS, RATES, FlightCommand, Floats, Odometry, Text
from hardware.nodes.shared.decision_rate import DecisionRate
from hardware.nodes.shared.fault_log import FaultLog
from hardware.nodes.shared.filter_watch import FilterWatch
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.send_clock import SendClock
from hardware.safety.frames import Frames
from hardware.topics import FLIGHT_RAW, FLIGHT_SAFE, GOAL, METADATA, ODOM, POLICY_STATUS
from policies.deploy.bundle import Bundle
from policies.deploy.runner import OnnxPolicy, bundle_noise
from policies.flight.observer import FlightObserver
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.shapes import Float

_STATUS_S = 0.5
_SHOWN = 8  # numbers of a goal that a message lists
_SEEN = 18  # position, rotation matrix, velocity, rates


class QuadPolicyNode:
    """`odom` and `goal` (a point, in the frame of odom) in, commands of the bundle's level on `flight/raw`
    out.

    States that come faster than the bundle's control rate are skipped, because its integral and its past
    actions count control periods. Both begin anew when the filter begins to pass commands.
    hover: for a bundle of thrust and body rates, the thrust 0 to 1 at which the craft hovers.
    """

    def __init__(
        self, bus: Bus, bundle: Bundle, observer: FlightObserver,
        goal_m: tuple[float, float, float] = (0.0, 0.0, 0.0),
        start: bool = True, say: Callable[[str], None] = print, hover: float = 0.5,
    ) -> None:  # fmt: skip
        check_flight(bundle, observer)
        self._units = FlightUnits(bundle.env.action, hover)
        self._bus, self._observer, self._enabled, self._say = bus, observer, start, say
        self._filter, self.timing = FilterWatch(bus), LoopTiming(1.0 / bundle.env.control_hz)
        self._policy, self._noise = OnnxPolicy(bundle, "cpu"), bundle_noise(bundle)
        self._noise.reset([0], [0])
        self._goal_m = np.asarray(goal_m, dtype=np.float64)
        self._clock, self._episode = SendClock(bus), 0
        self.flown, self._frames = FlightRecord(), Frames()
        self.decisions, self._took_s, self._bad_frames, self._bad_goal = 0, 0.0, "", ""
        self._faults, self._due = FaultLog(bus.name, say), DecisionClock(1.0 / bundle.env.control_hz)
        self._rate = DecisionRate(bus.name, bundle.env.control_hz, say)
        self._flies = False  # the filter passed commands at the newest decision
        self._sent: Float[ndarray, " 4"] | None = None  # newest command of the filter in this flight
        self._send, self._own = FLIGHT_RAW.publisher(bus), OwnStatus(bus, POLICY_STATUS)
        METADATA.publisher(bus)(Text(json.dumps(bundle.manifest)))
        ODOM.subscribe(bus, self._on_state)
        GOAL.subscribe(bus, self._on_goal)
        FLIGHT_SAFE.subscribe(bus, self._on_sent)
        for name, callback in (("~/start", self._start), ("~/stop", self._stop), ("~/reset", self._reset)):
            bus.service(name, callback)
        bus.timer(_STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Stop deciding: the filter lands. Reports an earlier reason for landing as well."""
        self._enabled = False
        self._own.leave(why)
        self._report()
        before = f"; {self._filter.reason}" if self._filter.reason else ""
        decisions = f"{self.decisions} decisions, the last in {1e3 * self._took_s:.2f} ms"
        return f"{why}: {self.flown}; {decisions}{before}"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Do nothing: the filter lands the craft."""

    def _on_sent(self, message: FlightCommand, received_s: float) -> None:
        """Remember what the filter sent: the policy observes it, one action for each decision.

        The filter repeats a command whose successor is late, so its messages do not count control periods.
        """
        values = np.asarray(message.values, dtype=np.float64)
        if values.shape == (4,) and np.isfinite(values).all():
            self._sent = self._units.to_policy(values)

    def _on_goal(self, message: Floats, received_s: float) -> None:
        if np.shape(message.values) == (3,) and np.isfinite(message.values).all():
            if not np.array_equal(self._goal_m, message.values):
                self.flown.new_goal()
            self._goal_m, self._bad_goal = np.asarray(message.values), ""
            return
        known, goal = self._bad_goal, np.asarray(message.values)
        shown = f"{goal.size} numbers" if goal.size > _SHOWN else goal.tolist()
        self._bad_goal = (
            f"the topic 'goal' holds {shown}, expected three finite numbers: the goal before it is kept"
        )
        if not known:
            self._say(f"{self._bus.name}: {self._bad_goal}")

    def _on_state(self, message: Odometry, received_s: float) -> None:
        due = self._due.decides(received_s)
        self._rate.see(received_s, due)
        if fault := self._frames.fault(message, may_change=not self._filter.passes):
            self._bad_frames = fault  # the filter, which lands for it, says it in the terminal
            return None
        self._frames.take(message)
        if self._filter.passes and np.isfinite(message.position_m).all():
            self.flown.see(received_s, float(np.linalg.norm(message.position_m - self._goal_m)))
        if not (due and self._enabled):
            return None
        self._forget_before_flight()
        if self._sent is not None:
            self._observer.record_action(self._sent)
        begin_s = time.perf_counter()
        self.timing.begin(self._bus.now())
        try:
            seen = self._observer.observe(vehicle_state(message), self._goal_m)
        except DataError as error:
            return self._faults.begin(str(error), self._bus.now())
        obs = {"state": torch.from_numpy(seen)[None, None]}
        action = self._policy.action_spec.denormalize(self._policy.sample(obs, self._noise.draw([0], [0])))
        self._took_s = time.perf_counter() - begin_s
        self.decisions, self._bad_frames = self.decisions + 1, ""
        self._faults.end(self._bus.now())
        values = self._units.to_filter(action[0, 0].numpy())
        names = RATES if self._units.rates else MOTORS
        self._send(FlightCommand(self._clock.stamp(), values, names))
        return self.timing.end(self._bus.now())

    def _forget_before_flight(self) -> None:
        """Let a flight begin as an episode of training: without integral, and after hovering."""
        flies = self._filter.passes
        if self._filter.reason or (flies and not self._flies):
            self._forget()
        self._flies = flies

    def _forget(self) -> None:
        self._observer.reset()
        self._sent = None

    def _start(self) -> Answer:
        self._enabled = True
        return True, f"deciding{self._filter.hint}"

    def _stop(self) -> Answer:
        self._enabled = False
        self._faults.end(self._bus.now())  # no longer looked for
        return True, "stopped: the filter lands"

    def _reset(self) -> Answer:
        self._forget()
        self._episode += 1
        return True, f"episode {self._episode}: what was seen is forgotten"

    def _report(self) -> None:
        slow = self._rate.fault(self._bus.now())
        wrong = self._bad_frames or self._faults.present or self._bad_goal or slow
        sentence = wrong or ("deciding" if self._enabled else "stopped")
        level = 1 if wrong or not self._enabled else 0
        values = {"decisions": str(self.decisions), "inference_ms": f"{1e3 * self._took_s:.2f}"}
        self._own.tell(level, sentence, values | self._rate.values)


def check_flight(bundle: Bundle, observer: FlightObserver) -> None:
    """Raise CheckpointError for a bundle whose observation this node cannot provide."""
    spec = bundle.env.obs.get("state")
    shown = _SEEN + 4 * observer.history + 3 * observer.integral
    if spec is None or spec.shape != (shown,) or bundle.env.action.dim != 4 or bundle.chunk != 1:
        found = "no 'state'" if spec is None else f"{spec.shape[0]} numbers"
        raise CheckpointError(
            f"The bundle {bundle.folder} ({bundle.env.name}) sees {found} and decides "
            f"{bundle.env.action.dim} at once; this node shows {shown} numbers of a hovering craft and sends "
            "4. Use one of robo-rl fly task=hover."
        )
