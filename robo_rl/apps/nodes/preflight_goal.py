"""Check that each bundle receives its goal, in the size of its observation, and knows the words that it is
told; a policy without its goal, or that knows no word, sends no commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from policies.vocabulary import unread_sentence, unread_words, vocabulary_at
from robo_rl.core.text.instruction import to_bytes

# Size of the goal that `robo-rl run` publishes, and its description for messages.
SIM_GOAL, SIM_TASK = 3, "the task of robot=sim_arm, a point in m,"
BUNDLE_NODES = ("arm_policy", "action_head")  # nodes that give an arm's bundle its goal
TOLD_NODES = ("arm_policy", "quad_policy")  # nodes that give a bundle its instruction


def check_goals(nodes: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield a remark for each bundle whose goal another program must publish, or that has no goal input.

    nodes: (node, its settings). Raises CheckpointError for a goal whose size differs from the bundle's.
    """
    from hardware.checks.arm_contract import check_goal, goal_names
    from policies.deploy.bundle import load_bundle

    goals = [list(given.goal) for node, given in nodes if node == "task" and given.goal]
    for folder in sorted({given.bundle for node, given in nodes if node in BUNDLE_NODES and given.bundle}):
        bundle = load_bundle(Path(folder))
        names = goal_names(bundle)
        for goal in goals:
            if names:
                check_goal(bundle, len(goal), f"goal={goal}")
            else:
                yield f"the bundle has no goal input, so goal={goal} has no effect on it."
        if names and not goals:
            yield (
                f"the bundle needs {', '.join(names)} from the topic 'goal', which none of these nodes "
                f"publishes: it waits until another program does, or give goal=[{','.join(names)}] here."
            )


def check_words(nodes: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield a remark for each bundle that does not know words of the instruction that a node publishes.

    nodes: (node, its settings). Raises ConfigError for words that are no instruction, or of which a bundle
    knows none.
    """
    instructions = [given.words for node, given in nodes if node == "task" and given.words]
    for folder in sorted({given.bundle for node, given in nodes if node in TOLD_NODES and given.bundle}):
        known = vocabulary_at(Path(folder))
        for words in instructions:
            to_bytes(words)
            if sentence := unread_sentence(folder, unread_words(words, known)):
                yield sentence
