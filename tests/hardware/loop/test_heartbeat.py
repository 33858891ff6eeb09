"""Sign of life of the policy whose chunk the head plays; times in seconds."""

from __future__ import annotations

from hardware.loop.heartbeat import PolicyHeartbeat, default_timeout_s

TIMEOUT_S, PERIOD_S = 0.025, 0.02


def heard(*times_s: float, timeout_s: float = TIMEOUT_S) -> PolicyHeartbeat:
    heartbeat = PolicyHeartbeat(timeout_s, PERIOD_S)
    for at_s in times_s:
        heartbeat.receive(True, at_s)
    return heartbeat


def test_default_timeout() -> None:
    """1.25 periods of commands, and never less than two late heartbeats."""
    assert default_timeout_s(0.02) == 0.025
    assert default_timeout_s(0.1) == 0.125
    assert default_timeout_s(0.002) == 0.025


def test_heartbeat_is_missing_after_the_timeout() -> None:
    heartbeat = heard(1.0, 1.01)
    assert not heartbeat.is_missing(1.034)
    assert heartbeat.is_missing(1.036)
    heartbeat.receive(True, 1.04)
    assert not heartbeat.is_missing(1.05)


def test_policy_without_heartbeats_is_not_judged() -> None:
    """A program that publishes chunks alone is not declared dead, and neither is one with timeout 0."""
    heartbeat = heard()
    heartbeat.note_chunk(0.0)
    assert not heartbeat.is_missing(9.0)
    assert not heard(1.0, timeout_s=0.0).is_missing(9.0)


def test_chunk_is_a_heartbeat() -> None:
    heartbeat = heard(1.0)
    heartbeat.note_chunk(1.02)
    assert not heartbeat.is_missing(1.04)
    assert heartbeat.is_missing(1.05)


def test_lost_policy_is_forgotten() -> None:
    """After the timeout and 5 periods, once: the next policy may have no heartbeats."""
    heartbeat = heard(1.0)
    assert not heartbeat.is_lost(1.12)
    assert heartbeat.is_lost(1.13)
    assert not heartbeat.is_lost(1.14)
    assert not heartbeat.is_missing(1.14)


def test_policy_that_ends_is_forgotten_at_once() -> None:
    heartbeat = heard(1.0)
    heartbeat.receive(False, 1.01)
    assert not heartbeat.is_missing(2.0)
