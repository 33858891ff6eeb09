"""Building a kernel with torch's inductor, which takes half a minute and can be interrupted at any time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.files.machine_code import make_cache_folder, no_build, stopped_at_once

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

    make_cache_folder(path.parent)
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
        raise no_build(str(error), "the simulator") from error
    finally:
        partial.unlink(missing_ok=True)
