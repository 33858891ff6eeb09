"""Rates and periods of messages, computed by hand."""

from __future__ import annotations

import pytest

from hardware.bus.topic_rate import TopicRateMeter


def test_rates_of_five_messages() -> None:
    """Periods 10, 10, 20, 40 ms by the sender's clock: mean 20, std sqrt(150); 4 messages of 100 bytes in 0.1
    s.
    """
    meter = TopicRateMeter(10)
    for sent_s, received_s in zip(
        (5.00, 5.01, 5.02, 5.04, 5.08), (1.0, 1.011, 1.02, 1.045, 1.1), strict=True
    ):
        meter.add(7, sent_s, received_s, 100)
    rate = meter.rate()
    assert rate is not None
    assert (rate.messages, rate.rate_hz, rate.bytes_s) == (5, pytest.approx(40.0), pytest.approx(4000.0))
    assert [rate.mean_s, rate.min_s, rate.max_s] == pytest.approx([0.02, 0.01, 0.04])
    assert rate.std_s == pytest.approx(150.0**0.5 / 1e3)
    assert str(rate) == (
        "40.0 Hz, period mean 20.00, min 10.00, max 40.00, std 12.25 ms, 4.0 kB/s, over 5 messages"
    )


def test_each_publisher_is_measured_by_its_own_clock() -> None:
    """Both at 10 Hz with clocks an hour apart: 20 Hz in all, and no jitter."""
    meter = TopicRateMeter(100)
    for i in range(20):
        meter.add(i % 2, 0.05 * i + 3600.0 * (i % 2), 0.05 * i, 10)
    rate = meter.rate()
    assert rate is not None
    assert rate.rate_hz == pytest.approx(20.0)
    assert (rate.min_s, rate.max_s) == pytest.approx((0.1, 0.1))


def test_old_pauses_leave_the_window() -> None:
    """A pause before the window does not affect the figures."""
    meter = TopicRateMeter(3)
    assert meter.rate() is None
    for time_s in (0.0, 9.0, 9.1, 9.2):
        meter.add(0, time_s, time_s, 1)
    rate = meter.rate()
    assert rate is not None
    assert (rate.messages, rate.max_s) == (3, pytest.approx(0.1))


def test_one_message_has_no_rate() -> None:
    meter = TopicRateMeter(3)
    meter.add(0, 1.0, 1.0, 1)
    assert meter.rate() is None
