"""Options and timing of the parts: wall time on a GPU, which is waited for, CPU time elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import emit, own_folder, parser, verb

__all__ = ["emit", "facts", "options", "own_folder", "seconds", "unit", "verb"]


def options(doc: str, add: Callable[[argparse.ArgumentParser], None] = lambda _: None) -> argparse.Namespace:
    """The options of a part. add: adds its own."""
    made = parser(doc.splitlines()[0])
    add(made)
    made.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="device to measure")
    args = made.parse_args()
    torch.set_num_threads(1)
    return args


def facts(device: str) -> dict[str, str]:
    """Name of the device, for a result's line."""
    return {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}


def unit(device: str) -> str:
    """Second of `seconds`."""
    return "s" if device == "cuda" else "cpu-s"


def seconds(work: Callable[[], object], calls: int, device: str, warm_up: int = 3) -> float:
    """Seconds per call, after `warm_up` calls."""
    for _ in range(warm_up):
        work()
    if device == "cuda":
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        for _ in range(calls):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - start_s) / calls
    start_s = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - start_s) / calls
