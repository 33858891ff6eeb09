"""Selection of episodes for imitation learning, which copies failures as well as successes."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.core.errors import ConfigError
from robo_rl.data.episodes.reader import Episode, EpisodeStore

# unfailed (the default): not marked as failed, and complete; success: marked as successful, and complete;
# all: every episode.
RULES = ("unfailed", "success", "all")


@dataclass(frozen=True, slots=True)
class EpisodeSelection:
    """Store indices of the selected episodes, and the number left out for each reason."""

    store: EpisodeStore
    positions: tuple[int, ...]
    failed: int  # marked as failed
    interrupted: int  # salvaged to their last complete frame, without a label
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
        """Sentence on how many episodes were left out and why; empty if none was."""
        if len(self.positions) == len(self.store):
            return ""
        taken = f"{len(self.positions)} of the {len(self.store)} episodes in {self.store.path}"
        return f"Learning from {taken}; left out: {self.reasons}."


def select_episodes(store: EpisodeStore, rule: str) -> EpisodeSelection:
    """Select the episodes that `rule`, one of RULES, permits. Raises ConfigError for an unknown rule."""
    if rule not in RULES:
        raise ConfigError(f"learn_from={rule} cannot be used, expected: {' | '.join(RULES)}.")
    reasons = [_exclusion_reason(episode, rule) for episode in store]
    positions = tuple(i for i, reason in enumerate(reasons) if not reason)
    return EpisodeSelection(
        store, positions, *(reasons.count(reason) for reason in ("failed", "interrupted", "unmarked"))
    )


def _exclusion_reason(episode: Episode, rule: str) -> str:
    """Reason to leave an episode out; empty if it is selected."""
    if rule == "all":
        return ""
    if episode.success is False:
        return "failed"
    if not episode.meta.complete:
        return "interrupted"
    return "unmarked" if rule == "success" and episode.success is None else ""
