"""The attack of the CDR readers finds a reader that is wrong; `benchmarks/attack.py --part cdr` runs it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
from hardware.bus.dds import fast_cdr
from hardware.bus.dds.cdr import RosTypes
from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("attacks.cdr")


def test_every_payload_gives_a_record_or_an_error(
    attacks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        tried, violations, example = attacks.attack(2000, seed=1)
    assert (tried >= 2000, violations.total(), example) == (True, 0, "")


def test_a_reader_that_is_misaligned_is_found(attacks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of eight bytes that are looked for at multiples of four: other values, and no error."""

    def floats(reader: Any) -> Any:
        count = reader.number()
        values = fast_cdr.np.frombuffer(reader.data, "<f8", count, reader.at)
        reader.at += 8 * count
        return values

    monkeypatch.setattr(fast_cdr._Reader, "floats", floats)
    run = attacks.CdrAttack(0)
    for _ in range(300):
        run.try_record(next(kind for kind in attacks.WIRE if kind.__name__ == "JointState"))
    assert run.counts["JointState differs"] > 0


def test_a_reader_that_raises_is_found(attacks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RosTypes, "parse", lambda self, data, ros_type: self.store.deserialize_cdr(data, ros_type)
    )
    run = attacks.CdrAttack(0)
    for _ in range(300):
        run.try_record(next(kind for kind in attacks.WIRE if kind.__name__ == "Imu"))
    assert run.counts.total() > 0
