"""The oracle detects a filter that breaks a promise, for every promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.safety import command_acceptance, limits, message_parsing, state_acceptance
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.command_acceptance import CommandAcceptance
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from tests.hardware.safety.test_safety_properties import Regime, Run

WILD = Regime("plain", 0.1, 0.7, 1e-3, 0.05, 0.1, 0.2, 0.05, 0.3)
BOXED = Regime("boxed", 0.1, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
BLOCKED = Regime("plain", 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
SHAKEN = Regime("plain", 0.1, 0.0, 0.05, 0.0, 0.0, 0.0, 0.0, 0.0)
HELD = Regime("plain", 0.1, 0.7, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0)
Patch = Callable[[pytest.MonkeyPatch], None]


def no_step(patch: pytest.MonkeyPatch) -> None:
    inner = limits._limited
    patch.setattr(
        limits, "_limited", lambda speed, last, measured, dt, lim: inner(speed, last, None, dt, lim)
    )


def no_range(patch: pytest.MonkeyPatch) -> None:
    far = np.full(3, 100.0)
    patch.setattr(limits, "stopping_speed", lambda distance, acceleration, dt: far)


def no_acceleration(patch: pytest.MonkeyPatch) -> None:
    inner = limits.towards

    def jerky(target: Any, last: Any, measured: Any, dt: float, lim: Any) -> Any:
        eager = replace(lim, acceleration_rad_s2=lim.acceleration_rad_s2 * 3)
        return inner(target, last, measured, dt, eager)

    patch.setattr(limits, "towards", jerky)


def no_bound_on_the_way_back(patch: pytest.MonkeyPatch) -> None:
    """Apply the measured position before speed and acceleration: a jump of the state is a jump of the arm."""
    inner = limits._limited

    def dragged(speed: Any, last: Any, measured: Any, dt: float, lim: Any) -> Any:
        move = inner(speed, last, measured, dt, lim)
        if measured is None:
            return move
        kept = np.clip(move.position_rad, measured - lim.step_rad, measured + lim.step_rad)
        return replace(move, position_rad=kept)

    patch.setattr(limits, "_limited", dragged)


def no_velocity(patch: pytest.MonkeyPatch) -> None:
    inner = limits.towards

    def racing(target: Any, last: Any, measured: Any, dt: float, lim: Any) -> Any:
        return inner(target, last, measured, dt, replace(lim, velocity_rad_s=lim.velocity_rad_s * 2))

    patch.setattr(limits, "towards", racing)


def no_hold_on_request(patch: pytest.MonkeyPatch) -> None:
    inner = CommandAcceptance._take_hold

    def deaf(self: CommandAcceptance, *request: Any) -> Any:
        target = self.target
        refused = inner(self, *request)
        self.target = target
        return refused

    patch.setattr(CommandAcceptance, "_take_hold", deaf)


def no_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message_parsing.StampOrder, "check", lambda self, stamp_s: None)


def no_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommandAcceptance, "_is_first", lambda self, received_s: False)


def no_age(patch: pytest.MonkeyPatch) -> None:
    for module in (command_acceptance, state_acceptance):
        patch.setattr(module, "is_stale", lambda now, received, limit: False)


def no_rank(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommandAcceptance, "source", "policy")


def no_latch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArmFilter, "stop", lambda self, reason=Reason.REQUESTED: (True, ""))


def no_arming(patch: pytest.MonkeyPatch) -> None:
    inner = ArmFilter.tick

    def eager(self: ArmFilter, now_s: float) -> Any:
        if self.phase is Phase.DISARMED:
            self._phase.phase = Phase.ARMED
        return inner(self, now_s)

    patch.setattr(ArmFilter, "tick", eager)


def no_finiteness(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(command_acceptance, "read_command", lambda message, names: message.position_rad[0])


def no_walls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "_inside_workspace", lambda move, *_: move)


REGIMES = {
    no_walls: BOXED,
    no_step: BLOCKED,
    no_bound_on_the_way_back: SHAKEN,
    no_hold_on_request: HELD,
}  # where the wild one would not show it


@pytest.mark.parametrize(
    "broken",
    [no_step, no_range, no_acceleration, no_velocity, no_order, no_guard, no_age, no_rank, no_latch,
     no_arming, no_finiteness, no_walls, no_bound_on_the_way_back, no_hold_on_request],
)  # fmt: skip
def test_oracle_catches_each_mutant(broken: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 300 sequences; the unchanged filter passes the same ones."""
    broken(monkeypatch)
    with np.errstate(all="ignore"), pytest.raises((AssertionError, IndexError, ValueError)):
        run_many(REGIMES.get(broken, WILD))


@pytest.mark.parametrize("regime", [WILD, BOXED, BLOCKED, SHAKEN])
def test_oracle_passes_the_unchanged_filter(regime: Regime) -> None:
    with np.errstate(all="ignore"):
        run_many(regime, 40)


def run_many(regime: Regime, sequences: int = 300) -> None:
    for i in range(sequences):
        Run(regime, np.random.default_rng([7, i]), [np.nan, np.inf]).run()
