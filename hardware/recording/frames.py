"""Synchronisation of recorded topics to frames at a fixed rate.

The observation of a frame is the newest message of each topic by its time of receipt, which is what a policy
would have observed at that tick. The action of a frame is the newest command at the next tick, because a
policy's first waypoint is one period ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.camera.jpeg import decoded
from hardware.loop.observation import ArmObserver, Picture, Seen
from hardware.messages import CompressedImage, DepthImage, Image
from hardware.recording.bag_reader import Bag
from hardware.recording.streams import Streams, TopicTrack
from hardware.topics import JOINT_STATES, TELEOP
from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Bool, Float, Int64

STILL_RAD = 0.01  # commands that change by less count as standing still
BEYOND_RAD = 0.05  # commands outside the limits by at most this much are clipped; others are an error
S_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FrameRules:
    """Settings of the synchronisation.

    low_rad, high_rad: limits of actions. gap_s: largest age of a topic's newest message at a tick. idle_s:
    time of standing still that is kept at either end of an episode; None keeps all of it.
    """

    rate_hz: float
    low_rad: Float[ndarray, " j"]
    high_rad: Float[ndarray, " j"]
    gap_s: float = 0.5
    idle_s: float | None = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """Messages of each frame: n frames, n + 1 ticks."""

    ticks_ns: Int64[ndarray, " n+1"]  # Unix time
    state: Int64[ndarray, " n+1"]  # index into the track of states
    command: Int64[ndarray, " n"]  # index into the track of commands
    action_rad: Float[ndarray, "n j"]
    intervention: Bool[ndarray, " n"]
    idle_s: float  # time of standing still that was removed

    @property
    def frames(self) -> int:
        """Number of frames n."""
        return len(self.command)


def plan_frames(streams: Streams, action: str, rules: FrameRules, *, goal: bool) -> Plan:
    """Choose the messages of each frame.

    action: topic of the commands. goal: True if the goal is part of the observation. Raises DataError whose
    text is a clause, such as "the arm was never commanded to move", for a recording that is no episode.
    """
    ticks_ns = _ticks(streams, rules, goal)
    state = streams.states.newest(ticks_ns)
    watched: dict[str, TopicTrack[Any]] = {JOINT_STATES.name: streams.states, **streams.pictures}
    if action != TELEOP.name:  # teleoperation sends nothing while the operator holds still
        watched[action] = streams.commands
    for topic, track in watched.items():
        _refuse_gap(topic, track, ticks_ns, rules.gap_s)
    command = streams.commands.newest(ticks_ns[1:])
    action_rad = _clipped(np.stack([streams.commands.values[i] for i in command]), rules)
    keep = _moving_frames(action_rad, rules)
    flags = np.array([False, *streams.intervention.values])  # False before the first message
    return Plan(
        ticks_ns=ticks_ns[keep.start : keep.stop + 1],
        state=state[keep.start : keep.stop + 1],
        command=command[keep],
        action_rad=action_rad[keep],
        intervention=flags[streams.intervention.newest(ticks_ns[1:]) + 1][keep],
        idle_s=(len(command) - (keep.stop - keep.start)) / rules.rate_hz,
    )


def observations(
    bag: Bag, streams: Streams, plan: Plan, observer: ArmObserver, pictures: Mapping[str, str]
) -> Iterator[tuple[Seen, dict[str, int]]]:
    """The observation at each of the n + 1 ticks, and its times [Unix ns].

    observer: the code that builds observations for policies, too. pictures: observation key -> topic. Times
    are t_capture_ns and t_receive_ns of the state, and t_capture_ns.<key> of each picture. Messages without a
    stamp of the sender have no t_capture_ns.
    """
    goals = streams.goal.newest(plan.ticks_ns)
    for place, goal, newest in zip(
        plan.state, goals, _newest_pictures(bag, plan.ticks_ns, pictures), strict=True
    ):
        state = streams.states.values[place]
        stamps_s = {"t_capture_ns": state.stamp_s} | {
            f"t_capture_ns.{key}": p.stamp_s for key, p in newest.items()
        }
        stamps_ns = {name: round(stamp_s * S_NS) for name, stamp_s in stamps_s.items() if stamp_s > 0.0}
        stamps_ns["t_receive_ns"] = int(streams.states.times_ns[place])
        goal_values = streams.goal.values[goal] if observer.goal_size and goal >= 0 else None
        yield observer.build(state, newest, goal_values), stamps_ns


def _ticks(streams: Streams, rules: FrameRules, goal: bool) -> Int64[ndarray, " t"]:
    """Ticks from the time when every topic has had a message until the first topic ends [Unix ns]."""
    period_ns = round(S_NS / rules.rate_hz)
    if goal and not len(streams.goal):
        raise DataError("no goal was published")
    needed: list[TopicTrack[Any]] = [streams.states, streams.commands, *streams.pictures.values()]
    needed += [streams.goal] if goal else []
    first_ns = max(int(track.times_ns[0]) for track in needed)
    seen: list[TopicTrack[Any]] = [streams.states, *streams.pictures.values()]
    ends_ns = [int(track.times_ns[-1]) for track in seen]
    last_ns = min(*ends_ns, int(streams.commands.times_ns[-1]) + period_ns)
    count = (last_ns - first_ns) // period_ns
    if count < 1:
        raise DataError(
            f"states, commands and pictures overlap for less than a period of {1.0 / rules.rate_hz:.3g} s"
        )
    return first_ns + period_ns * np.arange(count + 1, dtype=np.int64)


def _refuse_gap(topic: str, track: TopicTrack[Any], ticks_ns: Int64[ndarray, " t"], gap_s: float) -> None:
    age_s = (ticks_ns - track.times_ns[track.newest(ticks_ns)]) / S_NS
    worst = int(age_s.argmax())
    if age_s[worst] > gap_s:
        since_s = (ticks_ns[worst] - ticks_ns[0]) / S_NS
        raise DataError(
            f"nothing came on '{topic}' for {age_s[worst]:.2f} s, {since_s:.1f} s after its beginning"
        )


def _clipped(action_rad: Float[ndarray, "n j"], rules: FrameRules) -> Float[ndarray, "n j"]:
    """Actions clipped to the limits.

    Raises DataError for actions that are further outside than BEYOND_RAD.
    """
    clipped: Float[ndarray, "n j"] = np.clip(action_rad, rules.low_rad, rules.high_rad)
    if not (beyond := np.abs(action_rad - clipped)).max() <= BEYOND_RAD:  # also true for NaN
        frame, joint = np.unravel_index(int(np.nan_to_num(beyond, nan=np.inf).argmax()), beyond.shape)
        raise DataError(
            f"joint {joint + 1} is commanded to {action_rad[frame, joint]:.3g} rad, but actions have the "
            f"range {rules.low_rad[joint]:.3g} to {rules.high_rad[joint]:.3g}: check the unit, and the range "
            "of env="
        )
    return clipped


def _moving_frames(action_rad: Float[ndarray, "n j"], rules: FrameRules) -> slice:
    """The frames from `idle_s` before the first movement until `idle_s` after the last."""
    n = len(action_rad)
    begun = np.abs(action_rad - action_rad[0]).max(axis=1) > STILL_RAD
    ended = np.abs(action_rad - action_rad[-1]).max(axis=1) > STILL_RAD
    if not begun.any():
        raise DataError("the arm was never commanded to move")
    if rules.idle_s is None:
        return slice(0, n)
    margin = round(rules.idle_s * rules.rate_hz)
    return slice(max(0, int(begun.argmax()) - margin), min(n, n - int(ended[::-1].argmax()) + margin))


def _newest_pictures(bag: Bag, ticks_ns: Int64[ndarray, " t"],
                     pictures: Mapping[str, str]) -> Iterator[dict[str, Picture]]:  # fmt: skip
    """The newest picture of each key at each tick. Each picture is decoded once; one per key is in memory."""
    keys = {topic: key for key, topic in pictures.items()}
    messages = bag.raw(keys)
    newest: dict[str, tuple[str, bytes] | Picture] = {}
    following = next(messages, None)
    for tick_ns in ticks_ns:
        while following is not None and following[1] <= tick_ns:
            newest[keys[following[0]]] = following[0], following[2]
            following = next(messages, None)
        for key, item in newest.items():
            if isinstance(item, tuple):
                newest[key] = _picture(bag, *item)
        yield {key: item for key, item in newest.items() if not isinstance(item, tuple)}


def _picture(bag: Bag, topic: str, cdr: bytes) -> Picture:
    record = bag.decode(topic, cdr)
    if isinstance(record, CompressedImage):
        return Image(record.stamp_s, decoded(record.data), record.frame)
    if not isinstance(record, Image | DepthImage):
        raise DataError(f"'{topic}' carries {bag.topics[topic]}, not pictures")
    return record
