"""Building a kernel's machine code: a wait of half a minute, which a stop may end at any moment."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import EnvError

OPTIONS: dict[str, Any] = {
    "max_fusion_size": 4096,  # the default of 64 would cut one physics step into several loops over memory
    "realize_opcount_threshold": 1000,
    "cpp.enable_floating_point_contract_flag": "fast",
}


def build_kernel(graph: torch.fx.GraphModule, examples: Sequence[Tensor], path: Path) -> None:
    """Write the package of `graph` to `path`, whole or not at all.

    Raises EnvError when the C++ compiler fails, KeyboardInterrupt when Ctrl-C or SIGTERM ends the wait.
    """
    from torch._inductor.exc import CppCompileError, InductorError

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}-{os.getpid()}.pt2")
    try:
        with _stopped_at_once(), warnings.catch_warnings():
            for kind in (FutureWarning, DeprecationWarning):  # torch warns of its own use of its own names
                warnings.simplefilter("ignore", kind)
            exported = torch.export.export(graph, tuple(examples))
            options = dict(OPTIONS)  # a copy: torch adds its own
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(partial), inductor_configs=options
            )
        partial.replace(path)
    except (CppCompileError, InductorError) as error:
        said = [line.strip() for line in str(error).splitlines() if "error" in line.lower()]
        raise EnvError(
            f"The C++ compiler could not build the simulator. It said: {said[-1] if said else error}. See "
            "whether `g++ --version` works and memory is free (it takes 1 GB), and start again."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _stopped_at_once() -> Iterator[None]:
    """Ctrl-C reaches the compiler as well, which dies of it: noted for later, it would be taken for a failed
    build.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
