"""robo-rl as a library: `import robo_rl as rr`, then `rr.train(...)`, `rr.evaluate(...)`, ...

Names are imported when they are first used: `import robo_rl` loads neither torch nor a simulator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robo_rl.api import (
        Bundle,
        Dataset,
        Evaluation,
        LoadedPolicy,
        RoboRLError,
        Run,
        collect,
        distill,
        evaluate,
        export,
        finetune,
        load_bundle,
        load_policy,
        make_env,
        pretrain,
        train,
    )

__all__ = [
    "Bundle",
    "Dataset",
    "Evaluation",
    "LoadedPolicy",
    "RoboRLError",
    "Run",
    "collect",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "load_bundle",
    "load_policy",
    "make_env",
    "pretrain",
    "train",
]


def __getattr__(name: str) -> Any:
    """Attribute of `robo_rl.api`, imported at its first use."""
    if name not in __all__:
        raise AttributeError(
            f"module 'robo_rl' has no attribute '{name}', expected one of: {', '.join(__all__)}."
        )
    return getattr(import_module("robo_rl.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
