"""Instructions on a robot: the topic `task`, else the bundle's own; words that are none stop the policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.checks.arm_contract import mismatches
from hardware.loop.head_networks import decider
from hardware.loop.inference import Running
from hardware.loop.observation import Seen
from hardware.messages import Floats, JointState, Text
from hardware.nodes.arm_policy import ArmPolicyNode
from hardware.topics import POLICY_STATUS
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


def bundle(
    instruction: str | None = None, chunk: int = 16, graphs: int = 1, folder: Path = Path("bundle")
) -> Bundle:
    """Contract of a policy that reads words. folder: with the words that it knows, if it is there."""
    env = arm_env(instruction=INSTRUCTION_SPEC)
    files = ["policy.onnx", "refine.onnx"][:graphs]
    manifest = {
        "name": "words",
        "graphs": [{"file": file} for file in files],
        "rates_hz": {"state": 50.0, INSTRUCTION: 50.0},
    }
    return Bundle(folder, manifest, env, 1, chunk, 8, "zero", None, folder / "prefix.onnx", instruction)


def run(
    made: Bundle, script: list[tuple[float, str, Any]], seconds: float = 1.0
) -> tuple[Asked, list[str], list[tuple[int, str]]]:
    """The requests, what the node said, and levels and sentences of its status. The state and the goal arrive
    all the time.
    """
    bus, said = ScriptedBus(), list[str]()
    inference = Asked(bus)
    ArmPolicyNode(bus, made, arm(), inference, True, said.append)
    zero = np.zeros(len(NAMES))
    count = round(50 * seconds)
    states = [(0.02 * i, "joint_states", JointState(1e9 + 0.02 * i, NAMES, zero, zero)) for i in range(count)]
    goal = (0.0, "goal", Floats(np.zeros(1)))
    bus.script = sorted([goal, *states, *script], key=lambda row: row[0])
    bus.spin(lambda: bus.now_s > seconds)
    status = [message.status[0] for message in bus.sent[POLICY_STATUS.name]]
    return inference, said, [(each.level, each.message) for each in status]


def test_the_newest_words_are_followed_at_once() -> None:
    """A new instruction is asked for at the next control period, not after the running chunk."""
    asked, _, _ = run(bundle("open the drawer"), [(0.5, "task", Text("close the drawer"))])
    first = asked.words.index("close the drawer")
    assert set(asked.words[:first]) == {"open the drawer"}
    assert set(asked.words[first:]) == {"close the drawer"}
    assert asked.times_s[first] == pytest.approx(0.5, abs=0.0201)


def test_without_words_the_policy_waits() -> None:
    """No chunk, so the head holds the arm."""
    asked, _, _ = run(bundle(), [])
    assert asked.words == []
    asked, _, _ = run(bundle(), [(0.5, "task", Text("open the drawer"))])
    assert set(asked.words) == {"open the drawer"}


@pytest.mark.parametrize("text", ["open\tit", "x" * 10_000, " "])
def test_words_that_are_no_instruction_stop_the_policy(text: str) -> None:
    """Also where the bundle has its own: the robot does not go on with what nobody asked for."""
    asked, said, _ = run(bundle("open the drawer"), [(0.1, "task", Text(text))])
    assert 0 < len(asked.words) <= 2
    assert any("The topic 'task' cannot be followed" in line for line in said)


@pytest.fixture
def knows(tmp_path: Path) -> Path:
    """Files of a bundle whose policy knows four words; the configuration is that of a base."""
    config = {"vla": {"tokens": "words"}, "vocabulary": ["close", "drawer", "open", "the"]}
    (tmp_path / "policy.json").write_text(json.dumps({"config": {"base": {"config": config}}}))
    return tmp_path


UNREAD = "the policy does not know these words of the instruction and reads them all alike: fridge"


def test_words_that_the_policy_does_not_know_are_named_once(knows: Path) -> None:
    """In the log and, as long as they are told, in the status; the policy follows the other words."""
    made = bundle("open the drawer", folder=knows)
    words = [(0.6, "task", Text("open the fridge")), (1.2, "task", Text("open the fridge"))]
    asked, said, status = run(made, [*words, (2.1, "task", Text("close the drawer"))], 5.0)
    assert set(asked.words) == {"open the drawer", "open the fridge", "close the drawer"}
    assert [line for line in said if "fridge" in line and "resolved" not in line] == [f"test: {UNREAD}"]
    assert status[0] == status[-1] == (0, "inferring")
    assert status[1:4] == [(1, UNREAD)] * 3
    own = run(bundle("open the fridge", folder=knows), [])
    assert own[1] == [f"test: {UNREAD}"], "the bundle's own instruction"
    fault = run(bundle("wave hello", folder=knows), [])[2][0]
    assert fault[1].startswith("The bundle's instruction cannot be followed: The policy knows no word")


def test_an_instruction_without_a_known_word_is_not_followed(knows: Path) -> None:
    """The verbs of the workstation refuse it: every such instruction is the same to the policy."""
    asked, said, status = run(bundle(folder=knows), [(0.1, "task", Text("wave hello")), *GOES_ON])
    assert set(asked.words) == {"open it"}
    assert min(asked.times_s) == pytest.approx(0.7, abs=0.0201)
    fault = "The topic 'task' cannot be followed: The policy knows no word of the instruction 'wave hello'"
    assert [line for line in said if fault in line and "resolved" not in line] == [said[0]]
    assert status[0][0] == 1
    assert status[0][1].startswith(fault)


GOES_ON = [(0.7, "task", Text("open it"))]


def test_a_withdrawn_instruction_is_no_longer_a_fault(knows: Path) -> None:
    """An empty one withdraws it; the status says what the policy waits for now."""
    words = [(0.1, "task", Text("wave hello")), (0.7, "task", Text(""))]
    asked, said, status = run(bundle(folder=knows), words, 4.0)
    assert asked.words == []
    assert "'wave hello'" in status[0][1]
    assert set(status[1:]) == {(1, "waits for the topic 'task': no instruction has been published")}
    assert "resolved; " in said[-1]


def test_the_contract_allows_words_and_refuses_heads_without_a_prefix() -> None:
    assert not [fault for fault in mismatches(bundle(), arm()) if "instruction" in fault or "words" in fault]
    for made in (bundle(chunk=1), bundle(graphs=2)):
        assert any("has no prefix network" in fault for fault in mismatches(made, arm()))
        with pytest.raises(CheckpointError, match="has no prefix network"):
            decider(made)
    assert decider(bundle()) is None
