"""Process group of a rank that `torchrun` or `launch` has started, and its errors, told once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.process_signals import stop_with_parent
from robo_rl.nets.ranks import Ranks

LAUNCHER = "ROBO_RL_LAUNCHER"  # process id of the verb that started this rank
PEER_LOST = 75  # exit code of a rank that ends because another one has
STOPPED = 130  # exit code after Ctrl-C
_LOST = ("closed by peer", "reset by peer", "Broken pipe", "Socket closed", "gloo", "NCCL")


class RankError(RoboRLError):
    """A rank that has ended the run. own: the message is the rank's own sentence."""

    def __init__(self, message: str, exit_code: int, *, own: bool = False) -> None:
        super().__init__(message)
        self.exit_code, self.own = exit_code, own


def is_rank() -> bool:
    """True in a process that torch's elastic agent has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def speaks() -> bool:
    """True if this process tells the user its results: no rank, or rank 0 of a `torchrun` of the user."""
    return not is_rank() or (os.environ["RANK"] == "0" and LAUNCHER not in os.environ)


def rank_device(name: str) -> torch.device:
    """Device of this rank: GPU `LOCAL_RANK`, or the CPU. name: auto | cpu | cuda.

    Raises ConfigError if the machine has fewer GPUs than ranks.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={name} names one device for all processes. Use device=cuda, cpu or auto.")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    local, found = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if local > found:
        raise ConfigError(
            f"{local} processes need a GPU each, but torch sees {found} here. Lower processes (with "
            "torchrun: --nproc-per-node), or use device=cpu."
        )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


@contextmanager
def process_group(device: torch.device) -> Iterator[Ranks]:
    """The open process group: gloo for tensors of the CPU, NCCL for those of a GPU.

    A rank whose peer has ended exits with PEER_LOST and without a traceback: the peer's failure is the cause.
    """
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=None if device.type == "cpu" else device)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    except BaseException as error:
        # the agent's SIGTERM, sent once another rank has lost this one, must not replace its own exit code
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not _peer_lost(error):
            raise
        get_error_handler().record_exception(error)
        sys.stdout.flush()
        os._exit(PEER_LOST)  # closing NCCL would wait for the lost peer
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def reported() -> Iterator[None]:
    """Errors and stops of a rank, told once: by the launching verb if there is one, else by rank 0.

    An error's sentence goes to the agent's error file.
    """
    launcher = os.environ.get(LAUNCHER)
    if launcher is not None:
        stop_with_parent(int(launcher))
    try:
        yield
    except RoboRLError as error:
        get_error_handler().record_exception(error)
        if launcher is None:
            raise
        raise SystemExit(error.exit_code) from error
    except KeyboardInterrupt as stop:
        if speaks():
            raise
        raise SystemExit(STOPPED) from stop


def _peer_lost(error: BaseException) -> bool:
    if not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or any(word in str(error) for word in _LOST)
