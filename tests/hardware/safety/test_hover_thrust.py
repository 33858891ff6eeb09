"""A wrong hover thrust does not turn a landing into a climb."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hardware.messages import FlightCommand, Odometry
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import RatesLander
from robo_rl.apps.nodes.node_settings import parse_settings
from robo_rl.conf.node import FlightFilterNodeConfig, QuadPolicyNodeConfig, SimRobotNodeConfig
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.flight.envelope import FlightEnvelope

ENVELOPE = FlightEnvelope(1.0, 20.0, 5.0, (-3.0, -3.0, -1.4), (3.0, 3.0, 3.0))


class TooStrong(RatesLander):
    """A lander of a fault of ours: its blind descent is beyond the range of thrust."""

    def blind(self) -> Any:
        return np.array([52.25, 30.0, 0.0, 0.0])


@pytest.mark.parametrize("hover", [55.0, 1.2, 1.0, 0.0, -0.5, math.nan, math.inf])
def test_percentages_are_refused(hover: float) -> None:
    """With 55 for 55 %, every command of a landing was full thrust."""
    with pytest.raises(ConfigError, match="expected a hover thrust above 0 and below 1"):
        RatesLander(hover)


@pytest.mark.parametrize(
    ("node", "kind", "words"),
    [
        ("flight_filter", FlightFilterNodeConfig, ["bundle=x", "level=rates"]),
        ("quad_policy", QuadPolicyNodeConfig, ["bundle=x"]),
        ("sim_robot", SimRobotNodeConfig, ["robot=sim_quad"]),
    ],
)
def test_nodes_refuse_percentages(node: str, kind: Any, words: list[str]) -> None:
    for hover in ("55", "1.2", "1", "0"):
        with pytest.raises(RoboRLError, match=r"hover=.*from 0\.01 to 0\.99"):
            parse_settings(node, [*words, f"hover={hover}"], kind)
    assert parse_settings(node, [*words, "hover=0.62"], kind).hover == 0.62


def test_commands_without_a_state_are_clamped_too() -> None:
    """As all others: while it holds, and while it lands."""
    filter_ = FlightFilter(ENVELOPE, TooStrong(0.5), 100.0, 100.0, "rates")
    level = Odometry(0.0, np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), np.zeros(3))
    filter_.on_state(level, 0.0)
    assert filter_.arm(0.0)[0]
    phases = set()
    for step in range(60):
        now_s = 0.01 * step
        filter_.on_command(FlightCommand(1.0 + now_s, np.array([0.5, 0.0, 0.0, 0.0])), now_s)
        out = filter_.tick(now_s)
        assert out is not None
        assert out[0] <= 1.0
        assert np.linalg.norm(out[1:]) <= ENVELOPE.rate_rad_s
        phases.add(filter_.phase)
    assert phases == {FlightPhase.FLYING, FlightPhase.LANDING}
