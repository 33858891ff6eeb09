"""An interrupt of `ros2 launch` ends the nodes, also if the terminal has not told them of it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any


def interrupt_no_task() -> None:
    """Let SIGINT raise no KeyboardInterrupt while the asyncio loop of launch runs. Call it in that loop.

    launch reads SIGINT from a wakeup pipe, and drops the KeyboardInterrupt that Python raises as well. But if
    that ends the task which waits for a node, the node never gets a signal, and `ros2 launch` never ends.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and _loop_runs() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _loop_runs():
        signal.default_int_handler(number, frame)


def _loop_runs() -> bool:
    """True if an asyncio loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def asked_by_launch(signals: Mapping[Any, signal.Signals]) -> list[Any]:
    """Launch actions that send each node its signal when the launch receives SIGINT.

    launch itself sends none then: it assumes Ctrl-C, which the terminal sends to the nodes as well. But
    `kill -INT`, systemd, Docker and an IDE interrupt the launch alone. signals: action of a node -> signal,
    which must do no harm after the terminal's SIGINT. Visit these actions before the nodes start.
    """
    from launch.actions import EmitEvent, RegisterEventHandler
    from launch.event_handlers import OnProcessStart, OnShutdown
    from launch.events import matches_action
    from launch.events.process import SignalProcess

    started: list[Any] = []
    interrupted: list[Any] = []

    def ask(node: Any) -> Any:
        return EmitEvent(
            event=SignalProcess(signal_number=signals[node], process_matcher=matches_action(node))
        )

    def on_start(event: Any, context: Any) -> Any:
        started.append(event.action)
        return ask(event.action) if interrupted else None

    def on_shutdown(event: Any, context: Any) -> Any:
        if not event.due_to_sigint or context.noninteractive:
            return None  # launch sends SIGINT to the nodes
        interrupted.append(event)
        return [ask(node) for node in started]

    handlers = [OnShutdown(on_shutdown=on_shutdown)]
    handlers += [OnProcessStart(target_action=node, on_start=on_start) for node in signals]
    return [RegisterEventHandler(handler) for handler in handlers]
