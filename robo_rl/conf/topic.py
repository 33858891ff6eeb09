"""Settings of `robo-rl topic ...`, which observes running nodes over DDS without ROS."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, setting


@dataclass
class TopicListConfig:
    """`robo-rl topic list`."""

    namespace: str = setting("", "namespace of a robot, to list its topics only")
    wait_s: float = setting(1.0, "time of the search [s]", at_least=0.0)


@dataclass
class TopicInfoConfig:
    """`robo-rl topic info`."""

    topic: str = setting(REQUIRED, "name of the topic, e.g. joint_states; robo-rl topic list shows all")
    namespace: str = setting("", "namespace of the robot")
    wait_s: float = setting(3.0, "longest search for the topic [s]", at_least=0.0)


@dataclass
class TopicEchoConfig:
    """`robo-rl topic echo`."""

    topic: str = setting(REQUIRED, "name of the topic, e.g. joint_states; robo-rl topic list shows all")
    count: int | None = setting(None, "stop after this many messages; none: at Ctrl-C", at_least=1)
    seconds: float | None = setting(None, "stop after this time [s]; none: no limit", at_least=0.0)
    cut: int | None = setting(
        16, "number of elements shown of arrays and texts; none: all, also pixels", at_least=1
    )
    namespace: str = setting("", "namespace of the robot")
    wait_s: float = setting(3.0, "longest search for the topic [s]", at_least=0.0)


@dataclass
class TopicHzConfig:
    """`robo-rl topic hz`."""

    topic: str = setting(REQUIRED, "name of the topic, e.g. joint_states; robo-rl topic list shows all")
    window: int = setting(1000, "number of newest messages that each line is computed from", at_least=2)
    seconds: float | None = setting(None, "stop after this time [s]; none: at Ctrl-C", at_least=0.0)
    namespace: str = setting("", "namespace of the robot")
    wait_s: float = setting(3.0, "longest search for the topic [s]", at_least=0.0)
