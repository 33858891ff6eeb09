"""Watch on the episodes of a training: counts them, and says early when nothing can be learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from robo_rl.core.errors import EnvError
from robo_rl.eval.advice import at_once_sentence, ends_at_once, warning
from robo_rl.eval.training_history import TrainingHistory
from robo_rl.rl.running import CollectedEpisode


class TrainingWatch:
    """History of the training episodes; each warning is given once.

    demos: whether there are demonstrations. sparse: whether success alone is rewarded. can_be_dense: whether
    the environment has reward=dense. say: prints a sentence.
    """

    def __init__(
        self,
        *,
        has_base: bool,
        demos: bool,
        sparse: bool,
        limit_steps: int | None,
        can_be_dense: bool = True,
        say: Callable[[str], None] = print,
    ) -> None:
        self.history = TrainingHistory(limit_steps=limit_steps, sparse=sparse, can_be_dense=can_be_dense)
        self._has_base, self._demos, self._say = has_base, demos, say
        self._reported: set[str] = set()

    def add(
        self, episodes: Iterable[CollectedEpisode], *, of_base: bool, base_done: bool, progress: float
    ) -> None:
        """Add the episodes that ended in a step. Raises EnvError if all so far ended at once in success.

        progress: share of the run's steps that are done.
        """
        ended = list(episodes)
        for each in ended:
            self.history.add(
                each.success,
                each.steps,
                each.total_reward,
                of_base=of_base,
                progress=progress,
                reported=each.reported,
            )
        if not ended:
            return
        if ends_at_once(self.history.all):
            raise EnvError(
                f"{at_once_sentence(self.history.all)} There is nothing to learn. Correct the success or the "
                "reset of the environment."
            )
        name, sentence = warning(
            self.history, has_base=self._has_base, demos=self._demos, base_done=base_done
        )
        if name and name not in self._reported:
            self._reported.add(name)
            self._say(sentence)

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history.to_json(), "reported": sorted(self._reported)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.history = TrainingHistory.from_json(state["history"])
        self._reported = set(state.get("reported", state.get("told", ())))  # told: of earlier checkouts
