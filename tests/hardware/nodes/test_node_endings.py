"""The filter's node ends at rest or with a hold, whatever ends it; who ends it is told apart."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from hardware.bus.shield import shielded
from robo_rl.apps.nodes.node_life import Ending, listening, live
from robo_rl.core.process_signals import ASK
from tests.hardware.nodes.filter_cell import Cell


def test_sigterm_brakes_before_the_end() -> None:
    """SIGTERM in motion: brake, the last position three times, silence; then the bus is closed."""
    cell, said, ending = Cell(), list[str](), Ending()
    cell.until(1.0)
    ending.ask("SIGTERM")
    live([(cell.node, cell.filter_bus)], ending, say=said.append)
    assert said == ["filter: SIGTERM: braking, then silent; until then limited 1 acceleration."]
    assert cell.node.at_rest
    last = [place for _, place in cell.safe[-3:]]
    assert np.array_equal(last[0], last[2])


def test_interventions_are_reported_at_the_end() -> None:
    """For own robots only `robo-rl up` knows how often the filter intervened."""
    cell, said, ending = Cell(), list[str](), Ending()
    cell.until(1.0)
    cell.world.kill("policy")
    cell.until(3.0)
    ending.ask("SIGTERM")
    live([(cell.node, cell.filter_bus)], ending, say=said.append)
    assert said == [
        "filter: SIGTERM: nothing was being sent; until then limited 1 acceleration; hold 1 stale_command."
    ]


def test_second_interrupt_sends_a_hold() -> None:
    """Ctrl-C twice: no braking, but a hold at the last position is sent before the bus is closed."""
    cell, said, ending = Cell(), list[str](), Ending()

    def impatient() -> bool:
        if cell.world.now() >= 1.0:
            raise KeyboardInterrupt
        return False

    live([(cell.node, cell.filter_bus)], ending, until=impatient, say=said.append)
    assert said == ["filter: asked again (interrupted): stopped at once."]
    assert np.array_equal(cell.safe[-1][1], cell.safe[-2][1])


class _Failing:
    """A node whose timer and last message raise."""

    at_rest = True

    def stop(self, why: str) -> str:
        return why

    def finish(self) -> None:
        raise ValueError("its last message")


def test_failing_node_keeps_no_other_from_holding_the_arm() -> None:
    """An error in a timer ends the program; the filter beside it still sends its hold."""
    cell = Cell()
    cell.until(1.0)
    bus, sent = cell.world.bus("failing"), len(cell.safe)

    def fail() -> None:
        raise LookupError("a timer")

    bus.timer(0.005, fail)
    with pytest.raises(ValueError, match="its last message") as raised:
        live([(_Failing(), bus), (cell.node, cell.filter_bus)], Ending())
    assert isinstance(raised.value.__context__, LookupError)
    assert len(cell.safe) > sent
    assert cell.node.at_rest


def test_duplicate_sigint_counts_once() -> None:
    """`ros2 launch` and the terminal both pass Ctrl-C on, within milliseconds; one second later it is a
    second one.
    """
    now_s = [10.0]
    ending = Ending(clock=lambda: now_s[0])
    ending.started = True
    for at_s in (10.0, 10.01, 10.4):
        now_s[0] = at_s
        ending.on_signal(signal.SIGINT, None)
    assert ending.why == "SIGINT"
    now_s[0] = 11.0
    with pytest.raises(KeyboardInterrupt):
        ending.on_signal(signal.SIGTERM, None)


def test_what_follows_from_the_first_signal_is_no_second_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ros2 launch` passes Ctrl-C on after the terminal, and a launcher may end long after Ctrl-\\: a craft
    lands on, and only another signal switches its motors off.
    """
    now_s = [10.0]
    ending = Ending(clock=lambda: now_s[0])
    ending.started = True
    ending.on_signal(signal.SIGQUIT, None)
    assert (ending.why, ending.code) == ("SIGQUIT", 131)
    now_s[0] = 12.0
    ending.on_signal(ASK, None)
    monkeypatch.setattr("os.getppid", lambda: 1)
    ending.on_signal(signal.SIGTERM, None)
    now_s[0] = 12.01
    ending.on_signal(signal.SIGTERM, None)  # of another thread of the launcher
    now_s[0] = 13.0
    with pytest.raises(KeyboardInterrupt):
        ending.on_signal(signal.SIGTERM, None)


@pytest.mark.parametrize("number", [signal.SIGQUIT, ASK])
def test_quit_and_the_request_of_a_launch_stop_a_node(number: signal.Signals) -> None:
    """The last message is protected from them."""
    with listening() as ending:
        ending.started = True
        signal.raise_signal(number)
        with shielded():
            signal.raise_signal(number)
    assert ending.why == {signal.SIGQUIT: "SIGQUIT", ASK: "its launcher stops it"}[number]


def test_a_late_request_of_a_launch_does_not_kill_a_node_that_has_ended() -> None:
    """After Ctrl-C in a terminal the launcher asks as well."""
    before = signal.signal(ASK, signal.SIG_DFL)
    try:
        with listening():
            pass
        signal.raise_signal(ASK)
    finally:
        signal.signal(ASK, before)


def test_interrupt_while_loading_ends_at_once() -> None:
    """Nothing moves while a policy is being loaded, so the first Ctrl-C does not wait for it."""
    ending = Ending()
    with pytest.raises(KeyboardInterrupt):
        ending.on_signal(signal.SIGINT, None)
    assert ending.why == "SIGINT"


def test_exception_sends_a_hold() -> None:
    """A defect in any callback: the hold is sent before the traceback."""
    cell, ending = Cell(), Ending()
    cell.until(1.0)
    sent = len(cell.safe)

    def broken() -> bool:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        live([(cell.node, cell.filter_bus)], ending, until=broken, say=lambda sentence: None)
    assert len(cell.safe) > sent
