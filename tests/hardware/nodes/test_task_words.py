"""Instructions on a robot: the topic `task`, else the bundle's own; words that are none stop the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.checks.arm_contract import mismatches
from hardware.loop.deciders import decider
from hardware.loop.inference import Running
from hardware.loop.observation import Seen
from hardware.messages import Floats, JointState, Text
from hardware.nodes.arm_policy import ArmPolicyNode
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_text
from tests.hardware.arm_descriptions import NAMES, arm
from tests.hardware.bundles import arm_env
from tests.hardware.scripted_bus import ScriptedBus


class Asked:
    """Inference that answers at once, and the words of every request."""

    ready, fault = True, ""

    def __init__(self, bus: ScriptedBus) -> None:
        self._bus, self.words, self.times_s = bus, list[str](), list[float]()
        self._chunk: Any = None

    def request(self, seen: Seen, decision: int, running: Running | None = None) -> bool:
        self.times_s.append(self._bus.now_s)
        self.words.append(to_text(seen[INSTRUCTION][-1]))
        self._chunk = np.zeros((16, len(NAMES)), np.float32)
        return True

    def poll(self) -> tuple[Any, float] | None:
        chunk, self._chunk = self._chunk, None
        return None if chunk is None else (chunk, 0.001)

    def close(self) -> None:
        pass


def bundle(instruction: str | None = None, chunk: int = 16, graphs: int = 1) -> Bundle:
    """Contract of a policy that reads words. No file of it is opened here."""
    env = arm_env(instruction=INSTRUCTION_SPEC)
    files = ["policy.onnx", "refine.onnx"][:graphs]
    manifest = {
        "name": "words",
        "graphs": [{"file": file} for file in files],
        "rates_hz": {"state": 50.0, INSTRUCTION: 50.0},
    }
    folder = Path("bundle")
    return Bundle(folder, manifest, env, 1, chunk, 8, "zero", None, folder / "prefix.onnx", instruction)


def run(made: Bundle, script: list[tuple[float, str, Any]]) -> tuple[Asked, list[str]]:
    """The requests in one second, and what the node said. The state and the goal arrive all the time."""
    bus, said = ScriptedBus(), list[str]()
    inference = Asked(bus)
    ArmPolicyNode(bus, made, arm(), inference, True, said.append)
    zero = np.zeros(len(NAMES))
    states = [(0.02 * i, "joint_states", JointState(1e9 + 0.02 * i, NAMES, zero, zero)) for i in range(50)]
    goal = (0.0, "goal", Floats(np.zeros(1)))
    bus.script = sorted([goal, *states, *script], key=lambda row: row[0])
    bus.spin(lambda: bus.now_s > 1.0)
    return inference, said


def test_the_newest_words_are_followed_at_once() -> None:
    """A new instruction is asked for at the next control period, not after the running chunk."""
    asked, _ = run(bundle("open the drawer"), [(0.5, "task", Text("close the drawer"))])
    first = asked.words.index("close the drawer")
    assert set(asked.words[:first]) == {"open the drawer"}
    assert set(asked.words[first:]) == {"close the drawer"}
    assert asked.times_s[first] == pytest.approx(0.5, abs=0.0201)


def test_without_words_the_policy_waits() -> None:
    """No chunk, so the head holds the arm."""
    asked, _ = run(bundle(), [])
    assert asked.words == []
    asked, _ = run(bundle(), [(0.5, "task", Text("open the drawer"))])
    assert set(asked.words) == {"open the drawer"}


@pytest.mark.parametrize("text", ["open\tit", "x" * 10_000, " "])
def test_words_that_are_no_instruction_stop_the_policy(text: str) -> None:
    """Also where the bundle has its own: the robot does not go on with what nobody asked for."""
    asked, said = run(bundle("open the drawer"), [(0.1, "task", Text(text))])
    assert 0 < len(asked.words) <= 2
    assert any("The topic 'task' cannot be followed" in line for line in said)


def test_the_contract_allows_words_and_refuses_heads_without_a_prefix() -> None:
    assert not [fault for fault in mismatches(bundle(), arm()) if "instruction" in fault or "words" in fault]
    for made in (bundle(chunk=1), bundle(graphs=2)):
        assert any("has no prefix network" in fault for fault in mismatches(made, arm()))
        with pytest.raises(CheckpointError, match="has no prefix network"):
            decider(made)
    assert decider(bundle()) is None
