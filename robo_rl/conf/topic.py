"""Settings of `robo-rl topic ...`: looking on at nodes that run, over DDS and without ROS."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, setting


@dataclass
class TopicListConfig:
    """`robo-rl topic list`."""

    namespace: str = setting("", "of one robot: its topics alone")
    wait_s: float = setting(1.0, "how long to look", at_least=0.0)


@dataclass
class TopicInfoConfig:
    """`robo-rl topic info`."""

    topic: str = setting(REQUIRED, "e.g. joint_states; robo-rl topic list has them all")
    namespace: str = setting("", "of the robot")
    wait_s: float = setting(3.0, "how long to look for the topic", at_least=0.0)


@dataclass
class TopicEchoConfig:
    """`robo-rl topic echo`."""

    topic: str = setting(REQUIRED, "e.g. joint_states; robo-rl topic list has them all")
    count: int | None = setting(None, "stop after this many messages; none: at Ctrl-C", at_least=1)
    seconds: float | None = setting(None, "or after this time", at_least=0.0)
    cut: int | None = setting(
        16, "elements shown of an array; none: everything, long texts and pixels as well", at_least=1
    )
    namespace: str = setting("", "of the robot")
    wait_s: float = setting(3.0, "how long to look for the topic", at_least=0.0)


@dataclass
class TopicHzConfig:
    """`robo-rl topic hz`."""

    topic: str = setting(REQUIRED, "e.g. joint_states; robo-rl topic list has them all")
    window: int = setting(1000, "a line is about this many of the newest messages", at_least=2)
    seconds: float | None = setting(None, "stop after this time; none: at Ctrl-C", at_least=0.0)
    namespace: str = setting("", "of the robot")
    wait_s: float = setting(3.0, "how long to look for the topic", at_least=0.0)
