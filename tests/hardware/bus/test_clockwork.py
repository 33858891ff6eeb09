"""Timers, names and detection of silent topics: pure functions of time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.bus.names import namespace_of, node_name, resolve
from hardware.bus.protocol import Profile
from hardware.bus.quality import QUALITY
from hardware.bus.timers import Timers
from hardware.bus.watch import TopicWatch
from robo_rl.core.errors import BusError


def test_timers_keep_absolute_deadlines() -> None:
    """A late tick delays no later one; three missed ticks are served as one."""
    timers, fired = Timers(), []
    timers.add(0.1, lambda: fired.append("a"), 10.0)
    assert timers.due(10.05) == []
    assert len(timers.due(10.13)) == 1
    assert timers.next_s() == pytest.approx(10.2)
    assert len(timers.due(10.55)) == 1
    assert timers.next_s() == pytest.approx(10.6)


@given(st.floats(1e-3, 10.0), st.lists(st.floats(0.0, 5.0), max_size=30))
def test_timer_fires_at_most_once_per_period(period_s: float, gaps_s: list[float]) -> None:
    """At any time it fires at most once, and the next deadline is at most one period ahead."""
    timers, now_s = Timers(), 0.0
    timers.add(period_s, lambda: None, now_s)
    for gap_s in gaps_s:
        now_s += gap_s
        assert len(timers.due(now_s)) <= 1
        assert now_s - 1e-9 <= timers.next_s() <= now_s + period_s * (1 + 1e-9)


def test_the_earlier_timer_comes_first() -> None:
    timers, order = Timers(), []
    timers.add(0.3, lambda: order.append("slow"), 0.0)
    timers.add(0.2, lambda: order.append("fast"), 0.0)
    for callback in timers.due(0.35):
        callback()
    assert order == ["fast", "slow"]
    assert Timers().next_s() == math.inf


@pytest.mark.parametrize("period_s", [0.0, -1.0, math.nan, math.inf])
def test_a_timer_needs_a_period(period_s: float) -> None:
    with pytest.raises(BusError, match="above 0 s"):
        Timers().add(period_s, lambda: None, 0.0)


def test_names_are_relative_to_namespace_and_node() -> None:
    assert namespace_of("robots/left/") == "/robots/left"
    assert namespace_of("/") == namespace_of("") == ""
    assert resolve("joint_states", "/left", "arm") == "/left/joint_states"
    assert resolve("~/start", "/left", "arm") == "/left/arm/start"
    assert resolve("~/start", "", "arm") == "/arm/start"
    assert resolve("/estop", "/left", "arm") == "/estop"
    for bad in ("two words", "-x", "a/b"):
        with pytest.raises(BusError, match="cannot be the name of a node"):
            node_name(bad)
    with pytest.raises(BusError, match="cannot be a namespace"):
        namespace_of("a/3d")


def test_silence_and_its_end_are_reported_once() -> None:
    watch = TopicWatch("/joint_states", 100.0)
    assert watch.check(104.9, 0) is None
    assert "No message on '/joint_states' for 5 s: it has no publisher" in str(watch.check(105.0, 0))
    assert watch.check(106.0, 0) is None
    assert watch.on_message(108.0) == "'/joint_states' is back after 8 s."
    assert watch.on_message(108.1) is None
    assert "its publisher is still announced (for 10 s if it was killed)" in str(watch.check(114.0, 1))
    assert watch.on_message(115.0) is not None
    assert "its publisher is gone" in str(watch.check(121.0, 0))
    assert "although it has 2 publisher(s)" in str(TopicWatch("/x", 0.0).check(9.0, 2))


def test_profiles_are_compatible_with_themselves() -> None:
    """No subscriber requests more than the publisher of its profile offers."""
    assert set(QUALITY) == set(Profile)
    assert all(quality.offers_reliable >= quality.requests_reliable for quality in QUALITY.values())
