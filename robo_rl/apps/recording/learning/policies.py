"""Policies in the loop: the nodes of one bundle, and the success that the operator's labels measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics
from hardware.topics import LOOP_STATUS, POLICY_STATUS
from policies.deploy.bundle import MANIFEST
from robo_rl.apps.recording.learning.child import Child, how_ended
from robo_rl.core.errors import ConfigError

NODES = ("action_head", "arm_policy")  # in starting order
FRESH_S = 2.0  # each of the nodes reports twice a second
END_S = 2.0  # the supervisor of the app allows 8 s for everything
Start = Callable[[str, Sequence[str]], Child]


@dataclass
class Trials:
    """Labelled episodes in which the policy acted without a human."""

    successes: int = 0
    episodes: int = 0
    rate: str = ""  # in words, with the 95 % Wilson interval

    def add(self, success: bool) -> None:
        """Count one episode."""
        from robo_rl.eval.stats import SuccessRate

        self.successes, self.episodes = self.successes + success, self.episodes + 1
        self.rate = str(SuccessRate(self.successes, self.episodes))


@dataclass
class PolicyRunner:
    """The bundle that runs, and those that may be chosen.

    check: raises RoboRLError for a bundle that no node could run. words: node -> its command line for a
    bundle, in starting order. start: starts a process, (name, words).
    """

    bus: Bus
    check: Callable[[str], None]
    words: Callable[[str], dict[str, list[str]]]
    start: Start
    say: Callable[[str, str], None]  # (sentence, level)
    bundle: str = ""
    known: list[str] = field(default_factory=list)
    trials: dict[str, Trials] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._children: list[Child] = []
        self._heard_s: dict[str, float] = {}  # node: receipt of its newest status
        self._said = ""
        POLICY_STATUS.subscribe(self.bus, self._on_status)
        LOOP_STATUS.subscribe(self.bus, self._on_loop)

    @property
    def state(self) -> str:
        """none, loading or ready: all nodes report."""
        if not self._children:
            return "none"
        newest_s = [self._heard_s.get(child.name, -math.inf) for child in self._children]
        return "ready" if self.bus.now() - min(newest_s) < FRESH_S else "loading"

    def offer(self, bundle: str) -> None:
        """Add a bundle to those that may be chosen."""
        if bundle not in self.known:
            self.known.append(bundle)

    def load(self, bundle: str, accepted: Callable[[], object] = lambda: None) -> str:
        """Start the nodes of a bundle in place of the present ones; empty: none.

        accepted: called before the present nodes end, not for a bundle that is refused. Raises ConfigError
        for what is no readable bundle, and what `check` raises. The present policy then stays.
        """
        if bundle:
            try:
                if not (Path(bundle) / MANIFEST).is_file():
                    raise ConfigError(
                        f"{bundle} is no bundle: it has no {MANIFEST}. robo-rl export makes one."
                    )
                self.check(bundle)
            except OSError as error:  # would end the app, and what it records
                raise ConfigError(
                    f"{bundle} cannot be read ({error.strerror}). Choose another bundle, or change its "
                    "permissions."
                ) from error
        accepted()
        self.close()
        self.bundle, self._heard_s = bundle, {}
        if not bundle:
            return "no policy is loaded"
        self.offer(bundle)
        self._children = [self.start(name, given) for name, given in self.words(bundle).items()]
        return f"loading the policy {bundle}"

    def tick(self) -> None:
        """Notice a node that has ended."""
        for child in self._children:
            if child.code is not None:
                self.say(f"The policy's node {child.name} {how_ended(child.code, child.last)}", "error")
                self.close()
                self.bundle = ""
                return

    def finished(self, success: bool | None, by_policy_alone: bool) -> None:
        """Count an episode of the present policy."""
        if self.bundle and by_policy_alone and success is not None:
            self.trials.setdefault(self.bundle, Trials()).add(success)

    def view(self) -> dict[str, Any]:
        """What the page shows."""
        trials = self.trials.get(self.bundle)
        return {
            "state": self.state,
            "bundle": self.bundle,
            "known": list(self.known),
            "success": "" if trials is None else trials.rate,
            "said": self._said if self.state == "ready" else "",
        }

    def close(self) -> None:
        """End the nodes, the commanding one last."""
        for child in reversed(self._children):
            child.ask_to_stop()
        for child in reversed(self._children):
            child.end(END_S)
        self._children = []

    def _on_loop(self, message: Diagnostics, received_s: float) -> None:
        for status in message.status:
            self._heard_s[status.name] = received_s

    def _on_status(self, message: Diagnostics, received_s: float) -> None:
        self._on_loop(message, received_s)
        if message.status:
            status = message.status[0]
            ms = float(status.values.get("inference_ms", "0"))
            self._said = status.message if status.level or not ms else f"inferring in {ms:.0f}\u00a0ms"
