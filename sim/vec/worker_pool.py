"""Lanes in worker processes: shared memory for the arrays, one small message per worker and step.

Nothing can hang or leak: every wait has a time limit and watches all workers, the shared memory has no name
(the kernel frees it with its last user), and workers end with their parent.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import time
import weakref
from contextlib import suppress
from itertools import pairwise
from multiprocessing import reduction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import EnvError, RoboRLError
from robo_rl.core.spec import EnvSpec
from sim.vec.buffers import Buffers, size_bytes
from sim.vec.lane import MakeLane
from sim.vec.worker_process import SimWorker, start_worker, stop_workers

START_TIMEOUT_S = 300.0  # importing and building simulators on a busy machine
BUILDING = "building its simulators"
UNGUARDED = (
    " Its error is printed above. Workers import the script that starts them: put the main code of your "
    'script below `if __name__ == "__main__":`.'
)


class WorkerPool:
    """`num_envs` lanes over `num_workers` processes, in contiguous blocks.

    `submit` sends work and returns at once; `wait` returns when all of it is done. Lanes are numbered across
    the whole environment.
    """

    def __init__(self, make_lane: MakeLane, num_envs: int, num_workers: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._busy: set[int] = set()
        self._values: dict[int, Any] = {}
        self._workers: list[SimWorker] = []
        self._stop = weakref.finalize(self, stop_workers, self._workers)
        self._poll = select.poll()
        self._by_fd: dict[int, int] = {}
        try:
            self._start(make_lane, num_envs, num_workers)
            self.spec, self.info_keys = self._agree()
            self.buffers = self._share(num_envs)
        except BaseException:
            self.kill()
            raise

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid or 0 for worker in self._workers]

    def submit(self, command: str, work: Any = None) -> None:
        """Send a command: to all workers when `work` is None, else to the workers of the lanes in `work`."""
        for index, worker in enumerate(self._workers):
            mine = worker.share_of(work)
            if mine is None or len(mine):
                self._send(index, command, mine)

    def wait(self, doing: str = "stepping", timeout_s: float | None = None) -> None:
        """Wait for all submitted work.

        Raises EnvError when a worker raises, dies or does not answer in time; all workers have then ended.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + limit_s
        while self._busy:
            ready = self._poll.poll(max(0.0, deadline_s - time.monotonic()) * 1e3)
            if not ready and time.monotonic() >= deadline_s:
                self._fail_hung(doing, limit_s)
            # Messages before deaths: a worker that fails sends the reason, then exits.
            for fd, _ in sorted(ready, key=lambda event: event[0] not in self._conn_fds):
                index = self._by_fd[fd]
                if fd in self._conn_fds:
                    self._read(index, doing)
                    deadline_s = time.monotonic() + limit_s
                elif not self._workers[index].conn.poll():
                    self._fail_died(index, doing)

    def render(self, lane: int) -> NDArray[np.uint8]:
        self.submit("render", [lane])
        (index,) = self._busy
        self.wait("rendering")
        picture: NDArray[np.uint8] = self._values[index]
        return picture

    def close(self) -> None:
        """Let the workers close their simulators, and kill those that run after the grace period."""
        self._stop()
        self.__dict__.pop("buffers", None)  # the last reference to the shared memory

    def kill(self) -> None:
        """End all workers now."""
        if self._stop.alive:
            for worker in self._workers:
                worker.process.kill()
        self.close()

    def _start(self, make_lane: MakeLane, num_envs: int, num_workers: int) -> None:
        bounds = np.linspace(0, num_envs, num_workers + 1).astype(int).tolist()
        for first, last in pairwise(bounds):
            self._workers.append(start_worker(make_lane, first, last - first))
        self._conn_fds = {worker.conn.fileno() for worker in self._workers}
        for index, worker in enumerate(self._workers):
            for fd in (worker.conn.fileno(), worker.process.sentinel):
                self._by_fd[fd] = index
                self._poll.register(fd, select.POLLIN)

    def _agree(self) -> tuple[EnvSpec, tuple[str, ...]]:
        self._busy = set(range(len(self._workers)))
        self.wait(BUILDING, START_TIMEOUT_S)
        answers = [self._values[index] for index in range(len(self._workers))]
        for answer in answers[1:]:
            if answer != answers[0]:
                raise EnvError(f"All lanes must have one specification, found {answers[0]} and {answer}.")
        spec, info_keys = answers[0]
        return spec, info_keys

    def _share(self, num_envs: int) -> Buffers:
        """Arrays in shared memory without a name, which workers receive as a file descriptor."""
        extra = len(self.info_keys)
        fd = os.memfd_create("lanes")
        try:
            size = size_bytes(self.spec, num_envs, extra)
            os.ftruncate(fd, size)
            for index, worker in enumerate(self._workers):
                try:
                    worker.conn.send(num_envs)
                    reduction.send_handle(worker.conn, fd, worker.process.pid)
                except OSError:
                    self._fail_died(index, "starting")
                self._busy.add(index)
            buffers = Buffers.over(mmap.mmap(fd, size), self.spec, num_envs, extra)
        finally:
            os.close(fd)
        self.wait("starting")
        return buffers

    def _send(self, index: int, command: str, argument: Any) -> None:
        try:
            self._workers[index].conn.send((command, argument))
        except OSError:
            self._fail_died(index, "waiting for work")
        self._busy.add(index)

    def _read(self, index: int, doing: str) -> None:
        worker = self._workers[index]
        try:
            kind, value = worker.conn.recv()
        except (EOFError, OSError):
            self._fail_died(index, doing)
        if kind == "alive":
            return
        self._busy.discard(index)
        if kind == "refused":  # a user's mistake: the caller decides whether the environment survives
            raise _rebuilt(*value)
        if kind == "raised":
            self.kill()
            raise EnvError(
                f"Simulator worker {index} ({worker.lanes}) raised an error while {doing}:\n{value}"
            )
        self._values[index] = value

    def _fail_died(self, index: int, doing: str) -> NoReturn:
        worker = self._workers[index]
        death = f"(pid {worker.process.pid}, {worker.lanes}) died while {doing}: {worker.cause_of_death()}"
        stack = worker.crash_stack()
        if doing == BUILDING and worker.process.exitcode == 1:  # errors of a lane are sent
            stack += UNGUARDED
        self.kill()
        raise EnvError(f"Simulator worker {index} {death}.{stack}")

    def _fail_hung(self, doing: str, limit_s: float) -> NoReturn:
        hung = sorted(self._busy)
        for index in hung:
            with suppress(OSError):
                os.kill(self._workers[index].process.pid or 0, signal.SIGUSR1)
        time.sleep(0.2)  # time to write the stacks
        lines = [
            f"Simulator worker {index} ({self._workers[index].lanes}) did not answer within {limit_s:g} s "
            f"while {doing} and was killed.{self._workers[index].crash_stack()}"
            for index in hung
        ]
        self.kill()
        raise EnvError("\n".join(lines) + "\nGive a larger timeout_s if the simulator is only slow.")


def _rebuilt(kind: type[RoboRLError], message: str) -> RoboRLError:
    """The worker's error, made without its constructor, whose arguments may be other than a message."""
    error = kind.__new__(kind)
    error.args = (message,)
    return error
