"""Faults that come and go, said in the terminal once when they begin and once when they are over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MOST = 20  # faults that are told apart at a time
SETTLED_S = 2.0  # a fault that has not come back for so long is over


@dataclass(slots=True)
class _Fault:
    begin_s: float
    last_s: float
    times: int = 1


class FaultLog:
    """Says each fault when it begins, and its duration and count when it is over.

    A fault that returns within 2 s is the same one and is only counted: a robot whose states come irregularly
    would fill the terminal otherwise.
    """

    def __init__(self, node: str, say: Callable[[str], None]) -> None:
        self.present = ""  # sentence of the fault that is there now; empty without one
        self._node, self._say = node, say
        self._faults: dict[str, _Fault] = {}

    def begin(self, sentence: str, now_s: float) -> None:
        """Note that a fault is there; call it as often as it is found."""
        fault = self._faults.get(sentence)
        if fault is None and len(self._faults) >= MOST:
            pass  # said once there is room: a flood of different sentences fills neither memory nor terminal
        elif fault is None:
            self._faults[sentence] = _Fault(now_s, now_s)
            self._say(f"{self._node}: {sentence}")
        else:
            fault.last_s, fault.times = now_s, fault.times + (self.present != sentence)
        self.present = sentence
        self._tell_over(now_s)

    def end(self, now_s: float) -> None:
        """Note that no fault is there; call it as often as that is found."""
        if self.present in self._faults:
            self._faults[self.present].last_s = now_s
        self.present = ""
        self._tell_over(now_s)

    def _tell_over(self, now_s: float) -> None:
        over = [found for found in self._faults.items() if now_s - found[1].last_s > SETTLED_S]
        for sentence, fault in over:
            del self._faults[sentence]
            lasted = f"{fault.last_s - fault.begin_s:.1f} s"
            how = f"it occurred {fault.times} times within" if fault.times > 1 else "it lasted"
            self._say(f"{self._node}: resolved; {how} {lasted}: {sentence}")
