"""How nodes live and end: any end is a safe stop, and the terminal says why.

The first Ctrl-C or SIGTERM asks: the nodes come to rest, which takes as long as braking takes. The second, or
an error, does not wait: each node's last word is published, undisturbed by further signals, before the bus is
closed. What comes within half a second of the first is the same request: the terminal and `ros2 launch` both
pass one Ctrl-C on.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from hardware.bus.shield import shielded
from robo_rl.runs.signals import ended_by, signal_source

if TYPE_CHECKING:  # a Ctrl-C while these are being loaded would end in the loader's own lines
    from hardware.bus.protocol import Bus
    from hardware.nodes.shared.protocol import Node

SAME_S = 0.5  # signals this close are one request
REST_S = 60.0  # longest time that coming to rest may take, or to the ground: 18 m at 0.3 m/s


class Ending:
    """Why to end; None while nobody asked. A second request interrupts whatever is going on, and so does the
    first one before anything has `started`: loading a policy takes seconds, and nothing moves yet.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.why: str | None = None
        self.started = False
        self.code = 0  # what a shell sees of a program that its signal ended: 128 and the signal's number
        self._clock, self._asked_s = clock, float("-inf")

    def ask(self, why: str) -> None:
        """Note the first reason."""
        self.why = self.why or why

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        now_s = self._clock()
        if self.why is None:
            self._asked_s = now_s
            self.ask(signal_source(number))
            self.code = 128 + number
            if not self.started:
                raise KeyboardInterrupt(self.why)
        elif now_s - self._asked_s > SAME_S:
            raise KeyboardInterrupt


@contextmanager
def listening() -> Iterator[Ending]:
    """Signals become requests inside the block; in a thread that cannot hear them, nothing changes.

    A request before anything has `started` ends the block: see there whether it has. `leave` what was made by
    then.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = {number: signal.signal(number, ending.on_signal) for number in ended_by()}
    try:
        yield ending
    except KeyboardInterrupt:
        if ending.why is None:
            raise
    except Exception:
        # The interrupt of a module that is being imported can surface as anything, mostly as an ImportError.
        if ending.why is None or ending.started:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def live(
    nodes: Sequence[tuple[Node, Bus]],
    ending: Ending,
    until: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = print,
    done: Callable[[], str] = lambda: "done",
) -> None:
    """Spin until asked or `until()`, then bring the nodes to rest. The first bus spins; in one process that
    is all.

    done: says the reason when `until()` ended it. Nodes are stopped in order, and closed in reverse.
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
    """Each node's last word, then each bus is closed in reverse; no signal cuts this short."""
    with shielded():
        for node, _ in nodes:
            node.last_word()
        for _, own in reversed(nodes):
            own.close()
