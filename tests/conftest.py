"""What all tests share: one thread per process, and markers that skip where the machine lacks what they need."""

from __future__ import annotations

import importlib.util
import signal

import pytest
import torch


def pytest_configure() -> None:
    """Two test workers on two cores: more threads would only fight."""
    torch.set_num_threads(1)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell starts background jobs with Ctrl-C ignored; programs under test would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine cannot run."""
    missing = {}
    if not torch.cuda.is_available():
        missing["gpu"] = pytest.mark.skip(reason="torch sees no GPU here")
    if importlib.util.find_spec("rclpy") is None:
        missing["ros"] = pytest.mark.skip(reason="no ROS 2 is sourced here")
    for item in items:
        for name, skip in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(skip)
