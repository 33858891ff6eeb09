"""docs/transfer.md: loop that flies a bundle in another simulator."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sim.engines.quad.craft import load_craft
from sim.flight.robot import QuadBody
from tests.hardware.bundles import quad_bundle

PAGE = Path(__file__).parents[3] / "docs" / "transfer.md"
CRAFT = load_craft("cf2x_l2f")


class OtherSimulator:
    """A craft with rotor speeds in RPM that starts 10 cm from the goal."""

    def __init__(self) -> None:
        self._body = QuadBody(CRAFT, (0.1, 0.0, 0.0))

    def read(self) -> tuple[np.ndarray, ...]:
        return self._body.read()

    def step(self, rpm: np.ndarray) -> None:
        self._body.command(2.0 * rpm / CRAFT.max_rpm - 1.0)
        self._body.advance(0.01)


def test_the_loop_of_the_page_holds_a_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of the page, unchanged: after 5 s the craft is within 2 cm of the goal."""
    settings = {"craft": CRAFT.name, "history": 8, "integral": True}
    quad_bundle(tmp_path / "runs" / "fly" / "bundle", training={"settings": settings})
    section = PAGE.read_text().split("## In another simulator")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    simulator = OtherSimulator()
    exec(code[1], {"simulator": simulator})
    assert np.linalg.norm(simulator.read()[0]) < 0.02
