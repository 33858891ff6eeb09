"""Messages of compilations have a number and a usual duration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import PpoMethod
from robo_rl.flight.fly.runs import kernel_count
from sim.compile.kernel_count import compiling, count_kernel, kernels_expected


def test_kernels_are_counted_once_each() -> None:
    """A kernel that is used again, or is on disk, keeps the numbers of the others right."""
    with kernels_expected(2):
        assert count_kernel(Path("a")) == "1 of at most 2"
        assert count_kernel(Path("a")) == "1 of at most 2"
        assert count_kernel(Path("b")) == "2 of at most 2"
        assert count_kernel(Path("c")) == "3"
    with kernels_expected(3):
        assert "part 1 of at most 3 (once per task" in compiling(count_kernel(Path("a")))


def test_a_flight_by_gradients_needs_three_kernels() -> None:
    """Training, its gradient and the measurement; PyBullet's physics is not compiled."""
    config = FlyConfig()
    assert kernel_count(config) == 3
    assert kernel_count(replace(config, engine="pybullet")) == 2
    assert kernel_count(replace(config, method=PpoMethod())) == 2
    assert kernel_count(replace(config, eager=True)) == 0
