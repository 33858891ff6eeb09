"""Stamps from times of receipt, on a machine that interrupts the program anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.bus.clocks import TRIES, ClockOffset, ReceiptStamps

UNIX_S = 1.7e9  # Unix time when the monotonic clock is 0
PAUSES = st.sampled_from([0.0, 1e-7, 1e-6, 1e-4, 0.02, 0.5])


class Machine:
    """Two clocks of one time. Each reading takes as long as the next pause, before and after it."""

    def __init__(self, pauses: list[float]) -> None:
        self.now_s, self.set_by_s, self._pauses = 100.0, 0.0, iter(pauses)

    def pause(self) -> None:
        self.now_s += next(self._pauses, 1e-7)

    def monotonic(self) -> float:
        self.pause()
        read_s = self.now_s
        self.pause()
        return read_s

    def unix(self) -> float:
        self.pause()
        read_s = UNIX_S + self.set_by_s + self.now_s
        self.pause()
        return read_s


@given(
    st.lists(PAUSES, max_size=300),
    st.lists(st.floats(0.0, 0.01), min_size=2, max_size=60),
)
def test_stamps_keep_the_order_of_receipt(pauses: list[float], gaps_s: list[float]) -> None:
    """Under any interruptions. Differences between stamps are those of receipt, to a microsecond."""
    machine = Machine([1e-7] * 6 * TRIES + pauses)
    stamps, received_s, found = ReceiptStamps(machine.unix, machine.monotonic), [90.0], []
    for gap_s in gaps_s:
        received_s.append(received_s[-1] + gap_s)
    for at_s in received_s:
        found.append(stamps.stamp_ns(at_s))
        machine.pause()
    assert found == sorted(found)
    for at_s, stamp_ns in zip(received_s, found, strict=True):
        assert (stamp_ns - found[0]) / 1e9 == pytest.approx(at_s - received_s[0], abs=2e-9)
        assert stamp_ns / 1e9 == pytest.approx(UNIX_S + at_s, abs=2e-6)


@given(st.lists(PAUSES, max_size=200), st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=20))
def test_setting_the_clock_keeps_the_order(pauses: list[float], sets_s: list[float]) -> None:
    """When the clock is set forwards or back, stamps stand still rather than go back."""
    machine = Machine(pauses)
    stamps, found = ReceiptStamps(machine.unix, machine.monotonic), []
    for change_s in sets_s:
        for _ in range(3):
            machine.now_s += 0.01
            found.append(stamps.stamp_ns(machine.now_s))
        machine.set_by_s += change_s
    assert found == sorted(found)


def test_offset_follows_the_clock() -> None:
    """Within the bounds of the readings; an interruption alone changes nothing."""
    machine = Machine([1e-7] * 6 * TRIES)
    offset = ClockOffset(machine.unix, machine.monotonic)
    before = offset.offset_s
    assert before == pytest.approx(UNIX_S, abs=2e-6)
    machine._pauses = iter([0.5] * 6)
    assert offset.update() == before
    machine.set_by_s = -3.0
    assert offset.update() == pytest.approx(UNIX_S - 3.0, abs=2e-6)


def test_stamps_follow_simulated_time() -> None:
    """A simulator at half speed: after 1 s the stamps have moved by 0.5 s, to a millisecond."""
    now_s = [10.0]
    stamps = ReceiptStamps(lambda: 0.5 * now_s[0], lambda: now_s[0])
    found = []
    for _ in range(1001):
        found.append(stamps.stamp_ns(now_s[0]))
        now_s[0] += 0.001
    assert found == sorted(found)
    assert (found[-1] - found[0]) / 1e9 == pytest.approx(0.5, abs=1e-3)
