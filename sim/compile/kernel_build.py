"""Building a kernel with torch's inductor, which takes half a minute and can be interrupted at any time."""

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
    """Write the package of `graph` to `path` atomically.

    Raises EnvError when the C++ compiler fails, KeyboardInterrupt when Ctrl-C or SIGTERM ends the wait.
    """
    from torch._inductor.exc import CppCompileError, InductorError

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}-{os.getpid()}.pt2")
    try:
        with stopped_at_once(), warnings.catch_warnings():
            for kind in (FutureWarning, DeprecationWarning):  # torch warns about its own code
                warnings.simplefilter("ignore", kind)
            exported = torch.export.export(graph, tuple(examples))
            options = dict(OPTIONS)  # a copy: torch adds its own
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(partial), inductor_configs=options
            )
        partial.replace(path)
    except (CppCompileError, InductorError) as error:
        raise no_build(str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def no_build(said: str) -> EnvError:
    """Error of a failed build. said: output of the compiler, of which the last error is shown."""
    errors = [line.strip() for line in said.splitlines() if "error" in line.lower()]
    return EnvError(
        f"The C++ compiler could not build the simulator: {errors[-1] if errors else said}. Check that "
        "`g++ --version` works and that 1 GB of memory is free, and start again."
    )


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt at once.

    Ctrl-C also ends the compiler: if the signal were handled later, its exit would be taken for a failed
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
