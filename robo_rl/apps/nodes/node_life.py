"""Running and ending nodes: every end is a safe stop, and the terminal shows the reason.

The first Ctrl-C or SIGTERM is a request: the nodes come to rest, which takes as long as braking. A second
signal, or an error, does not wait: each node's last message is published, protected from further signals,
before the bus is closed. Signals within half a second of the first are the same request, because several
processes may pass on one Ctrl-C. So is, at any time, what follows from the first signal by itself: `ASK` of
`ros2 launch`, and the kernel's SIGTERM when a launcher that got the same signal has ended.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from hardware.bus.shield import shielded
from robo_rl.core.process_signals import ASK, stopped_by
from robo_rl.runs.signals import signal_source

if TYPE_CHECKING:  # a Ctrl-C while these are being loaded would end in the loader's own lines
    from hardware.bus.protocol import Bus
    from hardware.nodes.shared.protocol import Node

SAME_S = 0.5  # signals within this time are one request
REST_S = 60.0  # longest time to come to rest, or to land: 18 m at 0.3 m/s


class Ending:
    """Reason to end; None without a request.

    A second request interrupts the program, and so does the first one before anything has `started`: loading
    a policy takes seconds, and nothing moves yet.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.why: str | None = None
        self.started = False
        self.code = 0  # exit code as a shell expects it: 128 + the signal's number
        self._clock, self._asked_s = clock, float("-inf")
        self._parent = os.getppid()

    def ask(self, why: str) -> None:
        """Note a reason; only the first counts."""
        self.why = self.why or why

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        now_s, parent = self._clock(), os.getppid()
        lost, self._parent = parent != self._parent, parent
        if self.why is None:
            self._asked_s = now_s
            self.ask(signal_source(number))
            self.code = 128 + number
            if not self.started:
                raise KeyboardInterrupt(self.why)
        elif lost and number == signal.SIGTERM:
            self._asked_s = now_s  # the kernel's, which may send one for each thread of the parent
        elif number != ASK and now_s - self._asked_s > SAME_S:
            raise KeyboardInterrupt


@contextmanager
def listening() -> Iterator[Ending]:
    """Turn signals into requests inside the block; without effect in a thread that cannot handle signals.

    A request before anything has `started` ends the block; check `started` after it, and `leave` what was
    made.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = {number: signal.signal(number, ending.on_signal) for number in (*stopped_by(), ASK)}
    try:
        yield ending
    except KeyboardInterrupt:
        if ending.why is None:
            raise
    except Exception:
        # An interrupted import can raise anything, mostly ImportError.
        if ending.why is None or ending.started:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if before[ASK] is signal.SIG_DFL:  # would kill a node that is ending when a launcher asks it late
            signal.signal(ASK, signal.SIG_IGN)


def live(
    nodes: Sequence[tuple[Node, Bus]],
    ending: Ending,
    until: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = print,
    done: Callable[[], str] = lambda: "done",
) -> None:
    """Spin until a request or `until()`, then bring the nodes to rest.

    Only the first bus spins; in one process it drives all. done: reason for the report when `until()` ended
    it. Nodes are stopped in order, and closed in reverse.
    """
    bus, ending.started = nodes[0][1], True
    try:
        bus.spin(lambda: ending.why is not None or until())
        why = ending.why or done()
        for node, own in nodes:
            say(f"{own.name}: {node.stop(why)}.")
        end_s = bus.now() + REST_S
        bus.spin(lambda: all(node.at_rest for node, _ in nodes) or bus.now() > end_s)
    except KeyboardInterrupt:
        say(f"{bus.name}: asked again ({ending.why or 'interrupted'}): stopped at once.")
    finally:
        leave(nodes)


def leave(nodes: Sequence[tuple[Node, Bus]]) -> None:
    """Publish each node's last message, then close each bus in reverse; no signal interrupts this.

    A node whose last message fails keeps no other from sending its own: the error is raised at the end.
    """
    errors: list[Exception] = []
    with shielded():
        for last in (*(node.finish for node, _ in nodes), *(own.close for _, own in reversed(nodes))):
            try:
                last()
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0]
