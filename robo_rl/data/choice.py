"""Choice of the episodes to learn from: an imitator copies failures as well as successes."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.core.errors import ConfigError
from robo_rl.data.episodes.reader import Episode, EpisodeStore

# unfailed: marked as successful or not marked, and whole; success: marked as successful; all: every one.
RULES = ("unfailed", "success", "all")


@dataclass(frozen=True, slots=True)
class Choice:
    """Positions of the chosen episodes in the store, and the number left out for each reason."""

    store: EpisodeStore
    positions: tuple[int, ...]
    failed: int  # marked as failed
    interrupted: int  # salvaged to their last whole frame, without a label
    unmarked: int

    @property
    def episodes(self) -> list[Episode]:
        return [self.store.episode(position) for position in self.positions]

    @property
    def left_out(self) -> dict[str, int]:
        return {"failed": self.failed, "interrupted": self.interrupted, "unmarked": self.unmarked}

    @property
    def reasons(self) -> str:
        """Reasons with counts, e.g. "2 marked as failed, 1 interrupted"."""
        words = {
            "failed": "marked as failed",
            "interrupted": "interrupted",
            "unmarked": "not marked as successful",
        }
        return ", ".join(f"{count} {words[why]}" for why, count in self.left_out.items() if count)

    def sentence(self) -> str:
        """Sentence on what was left out and why; empty when nothing was."""
        if len(self.positions) == len(self.store):
            return ""
        taken = f"{len(self.positions)} of the {len(self.store)} episodes in {self.store.path}"
        return f"Learning from {taken}; left out: {self.reasons}."


def choose(store: EpisodeStore, rule: str) -> Choice:
    """Episodes that `rule`, one of RULES, allows. Raises ConfigError for an unknown rule."""
    if rule not in RULES:
        raise ConfigError(f"learn_from={rule} cannot be used, expected: {' | '.join(RULES)}.")
    reasons = [_against(episode, rule) for episode in store]
    positions = tuple(i for i, reason in enumerate(reasons) if not reason)
    return Choice(
        store, positions, *(reasons.count(reason) for reason in ("failed", "interrupted", "unmarked"))
    )


def _against(episode: Episode, rule: str) -> str:
    """Reason why an episode is left out; empty when it is not."""
    if rule == "all":
        return ""
    if episode.success is False:
        return "failed"
    if not episode.meta.complete:
        return "interrupted"
    return "unmarked" if rule == "success" and episode.success is None else ""
