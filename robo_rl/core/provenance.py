"""Provenance of results: commit, versions and machine, for every run, bundle and benchmark line."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = (
    "robo-rl",
    "torch",
    "numpy",
    "zarr",
    "diffusers",
    "mujoco",
    "metaworld",
    "gymnasium",
    "gym-pusht",
    "onnxruntime",
)
_VECTORS = (("avx512f", "AVX-512"), ("avx2", "AVX2"))  # flag in /proc/cpuinfo -> name, widest first


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@cache
def commit() -> str:
    """Short hash of the checkout, with "-dirty" if files differ from it; "unknown" outside a checkout.

    Changed benchmark results do not count as a difference, so a series of benchmarks has one commit. The
    variable ROBO_RL_COMMIT, if set, names the commit instead: for a copy without its history.
    """
    if named := os.environ.get("ROBO_RL_COMMIT"):
        return named
    if not (REPOSITORY / ".git").exists() or (short := _git("rev-parse", "--short=10", "HEAD")) is None:
        return "unknown"
    return short + ("-dirty" if _git("status", "--porcelain", "--", ".", ":!benchmarks/results") else "")


@cache
def versions() -> dict[str, str]:
    """Version of Python and of each installed package that can change a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def machine() -> str:
    """CPU model, widest vector extension and number of usable cores. Without the host name: results are
    published.
    """
    model = platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""  # not Linux: the architecture only
    return f"{_processor(text) or model}, {cores()} cores"


def _processor(cpuinfo: str) -> str:
    """CPU model with its vector extension, e.g. "AMD EPYC with AVX2": CPUs of one model name differ in it."""
    keys = [line.partition(":") for line in cpuinfo.splitlines()]
    fields = {key.strip(): value.strip() for key, _, value in reversed(keys)}  # the first core
    flags = fields.get("flags", "").split()
    vectors = next((f" with {name}" for flag, name in _VECTORS if flag in flags), "")
    return f"{fields['model name']}{vectors}" if "model name" in fields else ""
