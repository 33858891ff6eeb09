"""Worker processes seen from the parent: start, cause of death, end."""

from __future__ import annotations

import multiprocessing as mp
import os
import pickle
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.process import BaseProcess
from typing import Any

from robo_rl.core.errors import ConfigError
from robo_rl.core.packages import OURS
from robo_rl.core.plugins import PLUGINS
from sim.render.gl import check_gl_name
from sim.vec.lane import MakeLane
from sim.vec.worker_main import Connection, run_worker

_GRACE_S = 5.0  # time for a worker to close its simulators before it is killed
_DEATH_S = 1.0  # time for the system to report a death
_FORWARDED = ("MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID", "PYOPENGL_PLATFORM", "CUDA_VISIBLE_DEVICES")


@dataclass(slots=True)
class SimWorker:
    """Process that runs lanes first ... first + count - 1."""

    process: BaseProcess
    conn: Connection
    stacks: int  # file descriptor that the worker writes its stack to when it crashes
    first: int
    count: int

    @property
    def lanes(self) -> str:
        """Numbers of its lanes, for messages."""
        last = self.first + self.count - 1
        return f"lane {last}" if self.count == 1 else f"lanes {self.first}-{last}"

    def share_of(self, work: Any) -> Any:
        """Part of `work` (None, lanes, or a mapping from lanes) for this worker; its lanes count from 0."""
        if work is None:
            return None
        mine = [lane for lane in work if self.first <= lane < self.first + self.count]
        if isinstance(work, Mapping):
            return {lane - self.first: work[lane] for lane in mine}
        return [lane - self.first for lane in mine]

    def cause_of_death(self) -> str:
        """Exit code or signal of a worker that has ended."""
        self.process.join(_DEATH_S)
        code = self.process.exitcode
        if code is None:
            return "it closed its connection"
        if code >= 0:
            return f"exit code {code}"
        hint = " (killed from outside, or out of memory)" if code == -signal.SIGKILL else ""
        return f"exit code {code}, {signal.Signals(-code).name}{hint}"

    def crash_stack(self) -> str:
        """Python stack written by a crash or SIGUSR1, or an empty text."""
        text = os.pread(self.stacks, 1 << 16, 0).decode(errors="replace").strip()
        return f" Its stack:\n{text}" if text else ""


def start_worker(make_lane: MakeLane, first: int, count: int) -> SimWorker:
    """Start a worker process. Raises ConfigError when `make_lane` cannot be pickled."""
    # A fork server, not spawn: torch, NumPy and the simulator are imported once, and a worker starts in
    # milliseconds. Not fork: the parent may hold threads and a GPU.
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(imported_once(make_lane))
    environ = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
    environ[PLUGINS] = os.environ.get(PLUGINS, "")  # also when unset: the fork server may hold an older value
    conn, theirs = context.Pipe()
    process = context.Process(target=run_worker, args=(theirs, make_lane, first, count, environ), daemon=True)
    try:
        process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"make_lane cannot be sent to worker processes ({error}). Use a module-level function or a "
            "dataclass instead of a lambda or a local function, or num_workers=0."
        ) from error
    except EOFError:
        check_gl_name()  # the fork server could not import MuJoCo
        raise
    theirs.close()
    worker = SimWorker(process, conn, os.memfd_create("stacks"), first, count)
    with suppress(OSError):  # a worker that died at once is reported by the first wait
        reduction.send_handle(conn, worker.stacks, process.pid)
    return worker


def imported_once(make_lane: MakeLane) -> list[str]:
    """Modules that the fork server imports for all workers.

    A user's module is left to the workers: an error in it would end the fork server.
    """
    own = getattr(make_lane, "__module__", None) or type(make_lane).__module__
    builder = [own] if own.split(".")[0] in OURS else []
    return ["sim.vec.worker_main", *getattr(make_lane, "preload", ()), *builder]


def stop_workers(workers: Sequence[SimWorker]) -> None:
    """End all workers, by force after the grace period, and free their resources."""
    deadline_s = time.monotonic() + _GRACE_S
    for worker in workers:
        worker.conn.close()  # ends an idle worker
    for worker in workers:
        worker.process.join(max(0.0, deadline_s - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        os.close(worker.stacks)
        worker.process.close()
