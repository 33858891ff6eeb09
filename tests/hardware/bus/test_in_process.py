"""The bus within one process, on a clock that the test moves."""

from __future__ import annotations

import time

import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Bus, Profile
from hardware.messages import Flag, Text
from robo_rl.core.errors import BusError


def test_implements_the_bus_protocol() -> None:
    assert isinstance(InProcessWorld().bus("node"), Bus)


def test_virtual_time_passes_between_callbacks_only() -> None:
    """Ten seconds of a 100 Hz timer are 1000 calls, at 0.01, 0.02, ..., without waiting."""
    world, times = InProcessWorld(), list[float]()
    bus = world.bus("node")
    bus.timer(0.01, lambda: times.append(bus.now()))
    begun_s = time.monotonic()
    bus.spin(lambda: world.now() >= 10.005)
    assert len(times) == 1000
    assert times[0] == pytest.approx(0.01)
    assert times[-1] == pytest.approx(10.0)
    assert time.monotonic() - begun_s < 5.0


def test_messages_arrive_at_once_and_in_order() -> None:
    world, heard = InProcessWorld(), list[tuple[str, float]]()
    talker, listener = world.bus("talker"), world.bus("listener")
    say = talker.publisher("chatter", Text, Profile.SENSOR)
    listener.subscribe("chatter", Text, Profile.SENSOR, lambda message, at: heard.append((message.text, at)))
    other = talker.publisher("other", Text, Profile.SENSOR)
    talker.timer(0.5, lambda: [say(Text("a")), other(Text("x")), say(Text("b"))])
    listener.spin(lambda: len(heard) >= 4)
    assert [(text, round(at, 6)) for text, at in heard] == [("a", 0.5), ("b", 0.5), ("a", 1.0), ("b", 1.0)]


@pytest.mark.parametrize(
    ("profile", "kept"), [(Profile.COMMAND, ["4"]), (Profile.SENSOR, ["0", "1", "2", "3", "4"])]
)
def test_queues_keep_the_newest(profile: Profile, kept: list[str]) -> None:
    """Five messages in one callback: a command queue holds the last one, a sensor queue five."""
    world, heard = InProcessWorld(), list[str]()
    talker, listener = world.bus("talker"), world.bus("listener")
    say = talker.publisher("chatter", Text, profile)
    listener.subscribe("chatter", Text, profile, lambda message, at: heard.append(message.text))
    talker.timer(1.0, lambda: [say(Text(str(i))) for i in range(5)] and None)
    talker.spin(lambda: world.now() >= 1.0 and bool(heard))
    talker.spin(lambda: world.now() >= 1.5)
    assert heard == kept


def test_late_subscriber_gets_the_latched_message() -> None:
    world, heard = InProcessWorld(), list[bool]()
    talker = world.bus("talker")
    talker.timer(1.0, lambda: None)
    press = talker.publisher("estop", Flag, Profile.LATCHED)
    press(Flag(False))
    press(Flag(True))
    world.bus("late").subscribe("estop", Flag, Profile.LATCHED, lambda message, at: heard.append(message.on))
    talker.spin(lambda: world.now() >= 1.0)
    assert heard == [True]


def test_incompatible_quality_is_reported() -> None:
    """Best effort offered, reliable requested: no message passes, and a warning names the reason."""
    said: list[str] = []
    world, heard = InProcessWorld(warn=said.append), list[str]()
    talker, listener = world.bus("talker"), world.bus("listener")
    listener.subscribe("chatter", Text, Profile.COMMAND, lambda message, at: heard.append(message.text))
    say = talker.publisher("chatter", Text, Profile.SENSOR)
    talker.timer(0.1, lambda: say(Text("hello")))
    talker.spin(lambda: world.now() >= 1.0)
    assert not heard
    assert len(said) == 1
    assert "reliability" in said[0]


def test_topic_has_one_type() -> None:
    world = InProcessWorld()
    world.bus("a").publisher("chatter", Text, Profile.STATE)
    with pytest.raises(BusError, match="/a uses '/chatter' as Text and /b as Flag"):
        world.bus("b").subscribe("chatter", Flag, Profile.STATE, lambda message, at: None)
    with pytest.raises(BusError, match="carries Text, found Flag"):
        world.bus("c").publisher("chatter", Text, Profile.STATE)(Flag(True))  # type: ignore[arg-type]


def test_services_answer() -> None:
    world = InProcessWorld()
    node, other = world.bus("filter", "left"), world.bus("tool", "left")
    node.service("~/arm", lambda: (True, "armed"))
    assert other.call("filter/arm", 1.0) == (True, "armed")
    with pytest.raises(
        BusError, match=r"The service '/left/filter/stop' was not found.*Did you mean '/left/filter/arm'"
    ):
        other.call("filter/stop", 1.0)
    with pytest.raises(BusError, match="already offered by /left/filter"):
        other.service("filter/arm", lambda: (True, ""))
    with pytest.raises(BusError, match="There is a node '/left/tool' already"):
        world.bus("tool", "left")


def test_killed_and_closed_nodes_are_silent() -> None:
    """Killed: no timer, callback, message or service. Closed: the same after earlier messages."""
    world, heard = InProcessWorld(), list[str]()
    talker, listener = world.bus("talker"), world.bus("listener")
    say = talker.publisher("chatter", Text, Profile.COMMAND)
    talker.timer(0.1, lambda: say(Text("again")))
    talker.service("~/stop", lambda: (True, ""))
    listener.subscribe("chatter", Text, Profile.COMMAND, lambda message, at: heard.append(message.text))
    listener.timer(0.1, lambda: None)
    listener.spin(lambda: world.now() >= 0.55)
    assert len(heard) == 5
    world.kill("talker")
    say(Text("from the grave"))
    listener.spin(lambda: world.now() >= 1.0)
    assert len(heard) == 5
    with pytest.raises(BusError, match="No services were found"):
        listener.call("talker/stop", 1.0)
    last = world.bus("last")
    last.publisher("chatter", Text, Profile.COMMAND)(Text("bye"))
    last.close()
    assert heard[-1] == "bye"


def test_missed_deadlines_are_skipped_on_a_real_clock() -> None:
    """A 35 ms callback on a 10 ms timer is called at 10, 45, 80, ... ms, once each time."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    world, times = InProcessWorld(clock=lambda: now[0], sleep=sleep), list[float]()
    bus = world.bus("slow")

    def work() -> None:
        times.append(now[0])
        now[0] += 0.035

    bus.timer(0.01, work)
    bus.spin(lambda: len(times) == 4)
    assert times == pytest.approx([0.01, 0.045, 0.08, 0.115])


def test_spinning_without_work_is_an_error() -> None:
    with pytest.raises(BusError, match="No node has a timer"):
        InProcessWorld().bus("lonely").spin(lambda: False)


def test_publisher_count_follows_changes() -> None:
    """At once, including this node's own. A killed or closed node does not count."""
    world, told = InProcessWorld(), list[tuple[str, ...]]()
    node, other = world.bus("node"), world.bus("other")
    node.watch_publishers("chatter", told.append)
    node.publisher("chatter", Text, Profile.COMMAND)
    other.publisher("chatter", Text, Profile.COMMAND)
    other.publisher("another", Text, Profile.COMMAND)
    world.kill("other")
    last = world.bus("last")
    last.publisher("chatter", Text, Profile.COMMAND)
    last.close()
    assert told == [(), ("/node",), ("/node", "/other"), ("/node",), ("/node", "/last"), ("/node",)]


def test_messages_tell_their_sender() -> None:
    """Also those that wait; a closed publisher is gone."""
    world, events = InProcessWorld(), list[object]()
    node, other = world.bus("node"), world.bus("other")
    node.subscribe_senders(
        "estop",
        Flag,
        Profile.LATCHED,
        lambda flag, _, sender: events.append((sender, flag.on)),
        lambda senders: events.append(sorted(senders)),
    )
    own = node.publisher("estop", Flag, Profile.LATCHED)
    say = other.publisher("estop", Flag, Profile.LATCHED)
    say(Flag(True))
    own(Flag(True))
    say(Flag(False))
    other.close()
    assert events == [[], [0], [0, 1], (1, True), (0, True), (1, False), [0]]
