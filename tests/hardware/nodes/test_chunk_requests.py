"""The pace of requests for chunks, which answers count, and the status of a policy node."""

from __future__ import annotations

from typing import Any

import numpy as np

from hardware.nodes.shared.chunk_requests import ChunkRequests
from tests.hardware.scripted_bus import ScriptedBus


class OneAnswer:
    """Inference whose answer is `answer`, once it is set."""

    def __init__(self) -> None:
        self.ready, self.fault, self.answer, self.waits = False, "", None, False  # type: bool, str, Any, bool
        self.decisions: list[int] = []

    def request(self, seen: Any, decision: int, running: Any = None) -> bool:
        if self.waits or not self.ready:
            return False
        self.waits = True
        self.decisions.append(decision)
        return True

    def poll(self) -> Any:
        answer, self.answer = self.answer, None
        self.waits &= answer is None
        return answer

    def close(self) -> None:
        pass


def made() -> tuple[ScriptedBus, OneAnswer, ChunkRequests]:
    bus, inference = ScriptedBus(), OneAnswer()
    inference.ready = True
    return bus, inference, ChunkRequests(bus, inference, 3, "inferring")


def test_a_request_follows_the_one_before_it_after_as_many_periods_as_are_executed() -> None:
    """A request that a pending answer prevents stays due."""
    _, inference, requests = made()
    dues = []
    for period in range(8):
        due = requests.tick()
        dues.append(due and requests.request({}, 0.1 * period))
        if period == 4:
            inference.answer = np.zeros((4, 1)), 0.01
            assert requests.poll() is not None
    assert dues == [True, False, False, False, False, True, False, False]
    assert inference.decisions == [0, 1]


def test_an_answer_of_an_earlier_episode_is_counted_and_not_played() -> None:
    _, inference, requests = made()
    for new_episode in (False, True):
        assert requests.request({}, 7.0)
        if new_episode:
            requests.begin_episode()
        inference.answer = np.zeros((4, 1)), 0.02
        answer = requests.poll()
        assert (answer is None) == new_episode
        assert answer is None or answer[1] == 7.0
        assert requests.poll() is None
    assert requests.summary == "2 chunks were inferred, the last in 20.0 ms"
    assert requests.took.count == 2


def test_the_status_says_what_keeps_the_policy_from_inferring() -> None:
    """A fault of inference precedes one of the node, which precedes what the node does."""
    bus, inference, requests = made()
    assert requests.status(True, "", "")[:2] == (0, "inferring")
    assert requests.status(True, "", "unknown words")[:2] == (1, "unknown words")
    assert requests.status(False, "", "unknown words")[:2] == (1, "stopped")
    assert requests.status(True, "no goal", "")[:2] == (1, "no goal")
    inference.ready = False
    assert requests.status(True, "", "unknown words")[:2] == (1, "loading the policy")
    assert requests.start_word == "starting: the policy is being loaded"
    inference.ready = True
    assert requests.request({}, 0.0)
    bus.now_s += 3.0
    assert requests.status(True, "no goal", "")[:2] == (2, "inference has not answered for 3 s")
    inference.fault = "the inference process has died"
    assert requests.status(True, "no goal", "")[:2] == (2, inference.fault)
    assert not requests.ready
