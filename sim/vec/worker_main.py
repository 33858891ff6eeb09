"""Main function of a simulator worker: it builds lanes and serves the parent's commands.

Numbers travel through shared memory. Messages are tuples (command, argument) to the worker, and back ("done",
value), ("alive", None) during long work, ("refused", (error class, message)) for a user's mistake, or
("raised", traceback). Importing this module loads no simulator; the lane's builder loads it.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import traceback
from collections.abc import Mapping
from multiprocessing import connection, reduction
from typing import TYPE_CHECKING, Any

from robo_rl.core.errors import RoboRLError
from robo_rl.core.plugins import load_plugins
from robo_rl.core.process_signals import exit_with_parent, leave_to_parent
from sim.vec.buffers import Buffers, size_bytes
from sim.vec.lane_group import LaneGroup, build_lanes

if TYPE_CHECKING:
    Connection = connection.Connection[Any, Any]
else:  # generic for type checkers only
    Connection = connection.Connection


def run_worker(conn: Connection, make_lane: Any, first: int, count: int, environ: Mapping[str, str]) -> None:
    """Import the plugins, build `count` lanes, send the parent their specification, then serve its commands.

    `environ`: variables of the parent, which the fork server may lack.
    """
    leave_to_parent(signal.SIGINT, signal.SIGHUP)
    exit_with_parent()
    os.environ.update(environ)
    try:
        _report_crashes_to(reduction.recv_handle(conn))
        load_plugins()  # registers a user's environments in this process, too
        _serve(conn, _build(conn, make_lane, first, count))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent has closed the environment, or is gone
    except RoboRLError as error:
        conn.send(("refused", (type(error), str(error))))
    except Exception:
        conn.send(("raised", traceback.format_exc()))


def _build(conn: Connection, make_lane: Any, first: int, count: int) -> LaneGroup:
    lanes = build_lanes(make_lane, count)
    spec, info_keys = lanes[0].spec, lanes[0].info_keys
    conn.send(("done", (spec, info_keys)))
    total = conn.recv()
    memory = mmap.mmap(reduction.recv_handle(conn), size_bytes(spec, total, len(info_keys)))
    buffers = Buffers.over(memory, spec, total, len(info_keys))
    conn.send(("done", None))
    return LaneGroup(lanes, buffers.lanes(first, first + count), first)


def _serve(conn: Connection, group: LaneGroup) -> None:
    try:
        while True:
            command, argument = conn.recv()
            try:
                answer = ("done", _obey(conn, group, command, argument))
            except RoboRLError as error:
                answer = ("refused", (type(error), str(error)))
            conn.send(answer)
    finally:
        group.close()


def _obey(conn: Connection, group: LaneGroup, command: str, argument: Any) -> Any:
    if command == "step":
        return group.step()
    if command == "reset":
        return group.reset(argument)
    if command == "render":
        return group.render(*argument)
    for _ in group.replay(argument):
        conn.send(("alive", None))  # a replay may be long: the time limit counts per lane
    return None


def _report_crashes_to(file: int) -> None:
    """Write Python stacks to `file` on a crash, such as a segmentation fault, and on SIGUSR1."""
    faulthandler.enable(file=file, all_threads=False)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
