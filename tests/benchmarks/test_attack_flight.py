"""The attack of the flight filter finds a filter that breaks a promise; `attack.py --part flight` runs it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hardware.safety import flight, flight_limits
from hardware.safety.confirmation import Confirmation
from hardware.safety.landing import RatesLander
from hardware.safety.message_parsing import StampOrder

ROOT = Path(__file__).resolve().parents[2]
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "no envelope": (flight, "exceeded", lambda state, envelope: None),
    "no clamps": (flight, "clamped", lambda values, level, envelope: (values, ())),
    "cut too early": (flight, "_BLIND_S", 0.3),
    "held too long": (flight, "HOLD_S", 0.4),
    "off four times": (flight, "_OFFS", 4),
    "old states": (flight, "STALE_STATE_PERIODS", 4.0),
    "one state cuts": (Confirmation, "confirms", lambda self, received_s: True),
    "no state cuts": (Confirmation, "confirms", lambda self, received_s: False),
    "no order": (StampOrder, "check", lambda self, *place: None),
    "armed anywhere": (flight.FlightFilter, "_why_not", lambda self, now_s: None),
    "lands upwards": (RatesLander, "descend", lambda self, state, speed: np.array([0.6, 0.0, 0.0, 0.0])),
}


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("attacks.flight")


def test_the_filter_keeps_its_promises(attacks: ModuleType) -> None:
    tried, violations, example = attacks.attack(500, seed=1)
    assert (tried, violations.total(), example) == (500, 0, "")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_filter_is_found(name: str, attacks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    assert attacks.attack(200, seed=0)[1].total() > 0


def test_huge_body_rates_keep_their_direction() -> None:
    """The norm of these rates overflows in single squares: they are turned down, not dropped."""
    envelope = flight.FlightEnvelope(0.6, 8.0, 2.0, (-1.0,) * 3, (1.0,) * 3)
    kept, _ = flight_limits.clamped(np.array([0.5, 0.0, -1e308, 0.0]), "rates", envelope)
    assert kept == pytest.approx([0.5, 0.0, -8.0, 0.0])
