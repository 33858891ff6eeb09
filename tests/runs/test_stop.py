"""The first Ctrl-C is acknowledged and waits for a complete state; the second stops at once."""

from __future__ import annotations

import signal
import time

import pytest

from robo_rl.runs.signals import SAME_S, stop_between_steps


def test_first_signal_requests_and_second_interrupts(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_between_steps() as stop:
        assert not stop.asked
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        assert "once more stops at once" in capfd.readouterr().err
        signal.raise_signal(signal.SIGTERM)  # the same request, told twice
        time.sleep(SAME_S + 0.1)
        with pytest.raises(KeyboardInterrupt, match="the last checkpoint is kept"):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
