"""Fixtures and hooks of all tests: one thread per process, a DDS domain each, and skips for missing
hardware.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Any, Protocol

import pytest
import torch

from tests.hardware.domains import free_domain
from tests.shared_folder import shared_folder


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int: ...


def pytest_configure() -> None:
    """Two test workers on two cores: more threads would compete."""
    torch.set_num_threads(1)
    os.environ["COLUMNS"] = "120"  # of the help and of tables; workers of pytest-xdist have 80
    shared_folder()  # before the workers start, which inherit it
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell starts background jobs with Ctrl-C ignored; programs under test would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector off what the imports made: it would walk through all of it again and
    again, a fifth of the time that collecting the tests takes.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that this machine cannot run, with the reason."""
    missing = {}
    if not torch.cuda.is_available():
        missing["gpu"] = pytest.mark.skip(reason="torch sees no GPU here")
    if importlib.util.find_spec("rclpy") is None:
        missing["ros"] = pytest.mark.skip(reason="no ROS 2 is sourced here")
    if importlib.util.find_spec("pybullet") is None:
        missing["pybullet"] = pytest.mark.skip(
            reason="PyBullet is not installed here; it has no wheel for Python 3.12"
        )
    for item in items:
        for name, skip in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Let fsync return at once: thousands of calls of 3 to 6 ms each would take a fifth of the suite's time.

    Tests of power losses and full disks observe or replace the call themselves.
    """

    def fsync(file: int | HasFileno) -> None:
        os.fstat(file if isinstance(file, int) else file.fileno())  # what is closed is still an error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_table_of_onnx_operators() -> Iterator[None]:
    """Share PyTorch's table of ONNX operators, which every export rebuilds in a quarter of a small export's
    time.
    """
    export: Callable[..., Any] = torch.onnx.export

    with pytest.MonkeyPatch.context() as patch:

        def first_export(*given: Any, **named: Any) -> Any:
            from torch.onnx._internal.exporter import _registration

            tables: Any = _registration.onnxscript_apis  # type: ignore[attr-defined]
            patch.setattr(tables, "get_torchlib_ops", cache(tables.get_torchlib_ops))
            patch.setattr(torch.onnx, "export", export)
            return export(*given, **named)

        patch.setattr(torch.onnx, "export", first_export)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_store_of_schemas() -> Iterator[None]:
    """Let hydra share the schemas of all verbs, which each composition copies in 40 % of its time.

    A program composes once or twice, a test process hundreds of times. Hydra copies what it takes from
    the store, so that nothing there changes.
    """
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("hydra") is not None:
            from hydra.core.config_store import ConfigStore

            patch.setattr(ConfigStore, "__deepcopy__", lambda store, memo: store, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_import_of_torch_by_workers() -> Iterator[None]:
    """Let the fork server import what workers of most environments need, whichever test starts it first.

    A program has one environment, a test process many: the others' workers would import torch each.
    """
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("metaworld") is not None:
            from sim.vec import worker_process

            of_builder = worker_process.imported_once
            patch.setattr(
                worker_process, "imported_once", lambda lane: [*of_builder(lane), "sim.adapters.metaworld"]
            )
        yield


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A DDS domain for this test, also for the processes that it starts."""
    with free_domain() as number:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
        monkeypatch.delenv("ROBO_RL_INTERFACE", raising=False)
        monkeypatch.delenv("ROS_DISTRO", raising=False)
        yield number
