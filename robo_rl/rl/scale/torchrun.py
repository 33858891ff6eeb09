"""Starts the ranks of a training on this machine with torch's elastic agent, the engine of `torchrun`.

Every socket is bound to 127.0.0.1. For several machines call `torchrun` itself (docs/scale.md).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # missing in __all__
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, ProcessFailure, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from robo_rl.core.process_signals import ended_by
from robo_rl.rl.scale.environment import environment_variables
from robo_rl.rl.scale.process_group import LAUNCHER, PEER_LOST, STOPPED, RankError

LOOPBACK = "127.0.0.1"
STOP_S = 120  # time to finish a step and save after Ctrl-C, before the agent kills
_BACKEND = "robo_rl_loopback"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # that the agent may handle


class LoopbackRendezvous(StaticTCPRendezvous):
    """Meeting point of one agent's ranks, which only this machine can reach.

    torch's own rendezvous listens on all interfaces; this one hands its store a socket bound to 127.0.0.1.
    """

    def __init__(self, run_id: str, timeout_s: int) -> None:
        listener = socket.create_server((LOOPBACK, 0))
        port = listener.getsockname()[1]
        super().__init__(LOOPBACK, port, rank=0, world_size=1, run_id=run_id, timeout=timeout_s)
        self._server = TCPStore(
            LOOPBACK,
            port,
            None,
            True,
            timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )

    def get_backend(self) -> str:
        return _BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        store = PrefixStore(self.run_id, self._server)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(LOOPBACK, self.master_port))

    @classmethod
    def create(cls, parameters: RendezvousParameters) -> LoopbackRendezvous:
        return cls(parameters.run_id, int(parameters.get("timeout", 900)))


def launch(words: Sequence[str], processes: int, threads: int, *, progress: bool = True) -> None:
    """Run `python <words>` as `processes` ranks until all have ended.

    threads: of torch, in each. progress: show their progress bars. Raises RankError if a rank fails, which
    ends the others; KeyboardInterrupt after SIGINT, SIGTERM or SIGHUP, when the ranks have saved and ended.
    """
    registry.register(_BACKEND, LoopbackRendezvous.create)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    variables = {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": str(threads),
    } | ({} if progress else {"TQDM_DISABLE": "1"})
    with (
        tempfile.TemporaryDirectory(prefix="robo-rl-ranks-") as folder,
        environment_variables(variables, {LAUNCHER: str(os.getpid())}, ("TORCHELASTIC_SIGNALS_TO_HANDLE",)),
        _signal_handlers_kept(),
        _quiet(),
    ):
        try:
            elastic_launch(_launch_config(processes, folder), sys.executable)(*words)
        except ChildFailedError as error:
            raise _described(error.failures, processes) from error
        except SignalException as stop:
            raise KeyboardInterrupt from stop


def _launch_config(processes: int, folder: str) -> LaunchConfig:
    """One agent, which starts no rank again. folder: for the errors that the ranks record."""
    handled = ",".join(number.name for number in ended_by())
    newer: dict[str, Any] = {"signals_to_handle": handled, "shutdown_timeout": STOP_S}  # not in every torch
    known = {item.name for item in fields(LaunchConfig)}
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=f"robo-rl-{os.getpid()}",
        role="train",
        rdzv_backend=_BACKEND,
        max_restarts=0,
        monitor_interval=0.1,
        local_addr=LOOPBACK,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
        **{name: value for name, value in newer.items() if name in known},
    )


def _described(failures: Mapping[int, ProcessFailure], processes: int) -> BaseException:
    """The first cause of a failed launch: not the rank that only lost its peer."""
    causes = {rank: failure for rank, failure in failures.items() if failure.exitcode != PEER_LOST}
    explained = {rank: failure for rank, failure in causes.items() if _own_words(failure)}
    rank, failure = min((explained or causes or failures).items(), key=_order)
    if explained:
        return RankError(_own_words(failure), failure.exitcode, own=True)
    if failure.exitcode == STOPPED:
        return KeyboardInterrupt()
    who = f"Rank {rank} of {processes} (process {failure.pid})"
    if failure.exitcode < 0:
        return RankError(f"{who} was ended by {failure.signal_name()}, which ended the run", 1)
    if failure.exitcode == PEER_LOST:
        words = _own_words(failure).partition("\n")[0]
        return RankError(f"{who} lost the other ranks ({words}), which ended the run", 1)
    return RankError(f"{who} ended with exit code {failure.exitcode}, which ended the run", failure.exitcode)


def _own_words(failure: ProcessFailure) -> str:
    """Message of the exception that a rank has recorded; "" if it has recorded none."""
    found: object = failure.message
    return str(found["message"]).partition(": ")[2] if isinstance(found, dict) else ""


def _order(failure: tuple[int, ProcessFailure]) -> tuple[bool, int]:
    """Earliest first; those that the agent ended, by SIGTERM, last."""
    return failure[1].exitcode == -signal.SIGTERM, failure[1].timestamp


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore this process's signal handlers, which the agent replaces."""
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the agent's log lines: what the user needs to know is in the exception."""
    logger = logging.getLogger("torch.distributed.elastic")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
