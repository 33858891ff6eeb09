"""The policy in the loop: who acts, what is trained, and what is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hardware.bus.protocol import Answer
from robo_rl.apps.recording.callers import Caller
from robo_rl.apps.recording.learning.policies import PolicyRunner
from robo_rl.apps.recording.learning.training import TrainingJob
from robo_rl.core.errors import DataError

RESETS = ("arm_policy/reset", "action_head/reset")  # services that begin a new episode, in this order


@dataclass
class Autonomy:
    """A runner of bundles, and a training that makes them."""

    runner: PolicyRunner
    training: TrainingJob
    caller: Caller

    def begin(self, then: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Clear the policy's history, so that it starts from where the arm is; then call `then`.

        Raises DataError while no policy is ready.
        """
        if self.runner.state != "ready":
            raise DataError(
                "No policy is loaded: choose one, or train one."
                if self.runner.state == "none"
                else "The policy is still being loaded."
            )
        left = list(RESETS)

        def go_on(answer: Answer) -> None:
            if not answer[0]:
                failed(answer[1])
            elif left:
                self.caller.call(left.pop(0), go_on)
            else:
                then()

        self.caller.call(left.pop(0), go_on)

    def tick(self) -> None:
        """Notice what has ended."""
        self.runner.tick()
        self.training.tick()

    def view(self) -> dict[str, Any]:
        """What the page shows."""
        return {"policy": self.runner.view(), "training": self.training.view()}

    def close(self) -> None:
        """End policy and training."""
        self.runner.close()
        self.training.close()
