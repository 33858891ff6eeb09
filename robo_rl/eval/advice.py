"""Advice after a training that stopped short, and warnings during one that cannot learn."""

from __future__ import annotations

from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.training_history import EpisodeTally, TrainingHistory

ENOUGH = 0.97  # success above which there is nothing to advise
WEAK_BASE = 0.2  # success of a base below which demonstrations help most
HIGH, NEARLY_ALL = 0.9, 0.95  # success that may be nearly all, and the end of its interval from which it may
LATE_SHARE = 0.2  # share of late successes from which longer episodes help
NO_RISE = "success in the training episodes, in which the policy explores, does not rise clearly at the end"
CUT = " (which method.episode_limit_factor ends sooner than an evaluation would)"
FEW, MANY = 10, 100  # episodes of the base, and of a training, after which a total failure is reported


def advice(
    after: SuccessRate,
    before: SuccessRate | None,
    history: TrainingHistory,
    *,
    env_steps: int,
    demos: bool,
    replays: bool = True,
) -> str:
    """One sentence on how to raise the success; empty if the policy may succeed almost always, or nothing is
    known.

    before, after: success of the base and of the result in the final report. demos: whether there were
    demonstrations. replays: whether critics can learn from some, which those of a base with a memory cannot.
    """
    seen = history.all
    if ends_at_once(seen):
        return f"{at_once_sentence(seen)} Correct its success or its reset."
    if after.rate >= ENOUGH or (after.rate >= HIGH and after.wilson()[1] > NEARLY_ALL):
        return ""
    if not seen.episodes:
        return ""
    if not seen.successes and not after.k:
        if seen.rewarded and not history.sparse:
            return ""  # a task such as gym/Pendulum-v1, which has returns and no success
        return f"{nothing_seen(seen)} {ways_to_success(history, demos or before is not None)}"
    if (thirds := history.rising()) is not None:
        second, last = (f"{100 * rate.rate:.0f}" for rate in thirds)
        return (
            f"Train for more steps (env_steps={2 * env_steps}), because the success of training episodes was "
            f"still rising, from {second} % in the second third of the run to {last} % in the last."
        )
    if before is not None and before.rate < WEAK_BASE:
        return (
            f"Record more demonstrations and train the base again, because the base succeeds in {before}, "
            "and what it never does is found by chance alone."
        )
    if history.limit_steps is not None and seen.late > LATE_SHARE * max(1, seen.successes):
        return (
            f"Allow longer episodes (max_episode_steps={2 * history.limit_steps}), because {seen.late} of "
            f"{seen.successes} successes came in the last tenth of {history.limit_steps} steps."
        )
    if replays and not demos:
        return f"Give demonstrations (demos=<dataset>), because critics learn from them too, and {NO_RISE}."
    again = "" if before is None else " and train the base again,"
    return f"Record more demonstrations from the states in which the policy fails,{again} because {NO_RISE}."


def warning(history: TrainingHistory, *, has_base: bool, demos: bool, base_done: bool) -> tuple[str, str]:
    """(name, sentence) of what is wrong with the training so far; empty if nothing is.

    demos: whether there are demonstrations. base_done: whether the phase of the base alone has ended.
    """
    seen, base = history.all, history.base
    known = base.episodes - base.unreported
    if has_base and base_done and known >= FEW and not base.successes:
        cut = "" if history.limit_steps is not None else CUT
        return "base", (
            f"The base has not succeeded in any of its {known} training episodes{cut}. Training goes "
            "on, but finds a success only by chance. Better: a base from more demonstrations. "
            f"{ways_to_success(history, has_demos=True)}"
        )
    if seen.episodes >= MANY and not seen.successes and not seen.rewarded:
        return "reward", f"{nothing_seen(seen)} {ways_to_success(history, demos or has_base)}"
    return "", ""


def ends_at_once(seen: EpisodeTally) -> bool:
    """True if every episode so far succeeds in its first step."""
    return seen.episodes >= FEW and seen.at_once == seen.episodes


def at_once_sentence(seen: EpisodeTally) -> str:
    """What happened in a task that ends at once."""
    return f"The task ends at once: all {seen.episodes} episodes succeed in their first step."


def nothing_seen(seen: EpisodeTally) -> str:
    """What happened in episodes without a success."""
    what = "success" if seen.rewarded else "success and no reward"
    return f"No {what} was seen in {seen.episodes} training episodes."


def ways_to_success(history: TrainingHistory, has_demos: bool) -> str:
    """What to do without a success. has_demos: whether the training or its base has demonstrations."""
    dense = "give reward=dense, " if history.sparse and history.can_be_dense else ""
    imitate = (
        "record more demonstrations" if has_demos else "first train a base on demonstrations (robo-rl train)"
    )
    return f"To do: {dense}check the environment's success, or {imitate}."
