"""Content of an arm's recording, by topic: states, commands, goal, interventions and outcome."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.messages import Floats, JointState, JointTrajectory, Message
from hardware.recording.bag_reader import Bag
from hardware.recording.recording import CUT_OFF
from hardware.topics import EPISODE, GOAL, INTERVENTION, JOINT_STATES, RAW, SUCCESS, TASK
from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Float, Int64

T = TypeVar("T")


@dataclass(frozen=True)
class TopicTrack(Generic[T]):
    """Messages of one topic, in the order of receipt."""

    times_ns: Int64[ndarray, " n"]  # times of receipt [Unix ns]
    values: Sequence[T]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def rate_hz(self) -> float:
        """Rate from the median period; infinity with fewer than two messages."""
        return 1e9 / float(np.median(np.diff(self.times_ns))) if len(self) > 1 else math.inf

    def newest(self, at_ns: Int64[ndarray, " t"]) -> Int64[ndarray, " t"]:
        """Index of the newest message at each of these times; -1 where there is none yet."""
        return np.searchsorted(self.times_ns, at_ns, side="right").astype(np.int64) - 1


@dataclass(frozen=True)
class Streams:
    """The topics of one recording.

    Of pictures only the times are kept, because they do not fit into memory.
    """

    states: TopicTrack[JointState]  # only messages with all joints of the robot
    commands: TopicTrack[Float[ndarray, " j"]]  # joint positions [rad], in the order of the description
    goal: TopicTrack[Float[ndarray, " g"]]
    intervention: TopicTrack[bool]  # empty without a policy: pure teleoperation has no interventions
    pictures: dict[str, TopicTrack[None]]  # by topic
    success: bool | None  # last outcome that was published; None without one
    task: str  # last instruction that was published
    cut_off: bool = False  # True if the recorder was killed before an outcome was published


def read_streams(bag: Bag, robot: RobotDescription, action: str, pictures: Collection[str]) -> Streams:
    """The topics of a recording. action, pictures: names of the topics with commands and pictures.

    Raises DataError, whose text is a clause, for a recording without states, commands or these pictures.
    """
    plain = {topic.name for topic in (JOINT_STATES, GOAL, INTERVENTION, SUCCESS, TASK, EPISODE)} | {action}
    if missing := [name for name in (JOINT_STATES.name, action, *pictures) if name not in bag.topics]:
        raise DataError(f"nothing came on '{missing[0]}'")
    messages: dict[str, tuple[list[int], list[Any]]] = defaultdict(lambda: ([], []))
    for topic, received_ns, record in bag.messages(plain):
        value = _value(record, robot, is_state=topic == JOINT_STATES.name)
        if value is not None:
            _add(messages[topic], received_ns, value)
    for topic, received_ns, _ in bag.raw(pictures):
        _add(messages[topic], received_ns, None)
    tracks = {
        topic: TopicTrack(np.array(times, np.int64), values) for topic, (times, values) in messages.items()
    }
    empty: TopicTrack[Any] = TopicTrack(np.zeros(0, np.int64), [])
    states = tracks.get(JOINT_STATES.name, empty)
    if not len(states):
        raise DataError(f"no message on '{JOINT_STATES.name}' has all joints of '{robot.name}'")
    success, task, status = (tracks.get(topic.name, empty) for topic in (SUCCESS, TASK, EPISODE))
    commands = tracks.get(action, empty)
    if action == JOINT_STATES.name:
        commands = TopicTrack(
            states.times_ns, [_ordered(state.names, state.position_rad, robot) for state in states.values]
        )
    _check_commands(commands, robot, action)
    return Streams(
        states=states,
        commands=commands,
        goal=tracks.get(GOAL.name, empty),
        intervention=tracks.get(INTERVENTION.name, empty) if RAW.name in bag.topics else empty,
        pictures={topic: tracks[topic] for topic in pictures},
        success=success.values[-1] if len(success) else None,
        task=task.values[-1] if len(task) else "",
        cut_off=bool(len(status)) and status.values[-1] == CUT_OFF and not len(success),
    )


def _check_commands(commands: TopicTrack[Any], robot: RobotDescription, action: str) -> None:
    """Raise DataError, whose text is a clause, for commands that do not have one value per joint."""
    if not len(commands):
        raise DataError(f"no message on '{action}' has all joints of '{robot.name}'")
    for value in commands.values:
        if not isinstance(value, np.ndarray) or value.shape != (len(robot.joints),):
            found = f"{value.size} numbers" if isinstance(value, np.ndarray) else f"'{value}'"
            raise DataError(
                f"a message on '{action}' holds {found}; '{robot.name}' has {len(robot.joints)} joints"
            )


def _add(track: tuple[list[int], list[Any]], received_ns: int, value: Any) -> None:
    track[0].append(received_ns)
    track[1].append(value)


def _value(record: Message, robot: RobotDescription, *, is_state: bool) -> Any:
    """The part of a message that is kept; None for a message of other joints, such as a gripper's."""
    if isinstance(record, JointState):
        if not set(robot.names) <= set(record.names):
            return None
        return record if is_state else _ordered(record.names, record.position_rad, robot)
    if isinstance(record, JointTrajectory):
        return _waypoint(record, robot)
    if isinstance(record, Floats):
        return record.values
    return getattr(record, "on", getattr(record, "text", None))


def _waypoint(record: JointTrajectory, robot: RobotDescription) -> Float[ndarray, " j"] | None:
    """The waypoint of a command, in the order of the description.

    Raises DataError for several waypoints: the time at which each was executed is not known.
    """
    if len(record.position_rad) != 1:
        raise DataError(
            f"a command holds {len(record.position_rad)} waypoints, expected one; import the measured "
            "positions instead, with action=joint_states"
        )
    return _ordered(record.names, record.position_rad[0], robot)


def _ordered(
    names: Sequence[str], values: Float[ndarray, " n"], robot: RobotDescription
) -> Float[ndarray, " j"] | None:
    """The values in the order of the description; None where a joint of the robot is missing."""
    if not set(robot.names) <= set(names) or len(values) != len(names):
        return None
    ordered: Float[ndarray, " j"] = np.asarray(values, dtype=np.float64)[
        [names.index(name) for name in robot.names]
    ]
    return ordered
