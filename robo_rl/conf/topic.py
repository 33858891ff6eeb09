"""Settings of `robo-rl topic ...`: looking on at nodes that run, over DDS and without ROS."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, at_least


@dataclass
class TopicListConfig:
    """`robo-rl topic list`."""

    namespace: str = ""  # of one robot: its topics alone
    wait_s: float = at_least(0.0, 1.0)  # how long to look


@dataclass
class TopicInfoConfig:
    """`robo-rl topic info`."""

    topic: str = REQUIRED  # e.g. joint_states; robo-rl topic list has them all
    namespace: str = ""  # of the robot
    wait_s: float = at_least(0.0, 3.0)  # how long to look for the topic


@dataclass
class TopicEchoConfig:
    """`robo-rl topic echo`."""

    topic: str = REQUIRED  # e.g. joint_states; robo-rl topic list has them all
    count: int | None = at_least(1, None)  # stop after this many messages; none: at Ctrl-C
    seconds: float | None = at_least(0.0, None)  # or after this time
    cut: int | None = at_least(
        1, 16
    )  # elements shown of an array; none: everything, long texts and pixels as well
    namespace: str = ""  # of the robot
    wait_s: float = at_least(0.0, 3.0)  # how long to look for the topic


@dataclass
class TopicHzConfig:
    """`robo-rl topic hz`."""

    topic: str = REQUIRED  # e.g. joint_states; robo-rl topic list has them all
    window: int = at_least(2, 1000)  # a line is about this many of the newest messages
    seconds: float | None = at_least(0.0, None)  # stop after this time; none: at Ctrl-C
    namespace: str = ""  # of the robot
    wait_s: float = at_least(0.0, 3.0)  # how long to look for the topic
