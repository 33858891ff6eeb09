"""Check that each bundle receives its goal, in the size of its observation; without one it never commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SIM_GOAL, SIM_TASK = (
    3,
    "the task of robot=sim_arm, a point in m,",
)  # how many numbers `robo-rl run` tells, and whose
SHOWN = ("arm_policy", "action_head")  # nodes that show an arm's bundle its goal


def check_goals(nodes: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield a remark for each bundle whose goal another program must publish, or that has no goal input but
    gets one.

    nodes: (node, its settings). Raises CheckpointError for a goal of another size than the bundle's.
    """
    from hardware.checks.arm_contract import check_goal, goal_names
    from policies.deploy.bundle import load_bundle

    told = [list(given.goal) for node, given in nodes if node == "task" and given.goal]
    for folder in sorted({given.bundle for node, given in nodes if node in SHOWN and given.bundle}):
        bundle = load_bundle(Path(folder))
        names = goal_names(bundle)
        for goal in told:
            if names:
                check_goal(bundle, len(goal), f"goal={goal}")
            else:
                yield f"the bundle is shown nothing of its task, so goal={goal} changes nothing for it."
        if names and not told:
            yield (
                f"the bundle is shown {', '.join(names)} by the topic 'goal', which none of these nodes "
                f"tells: it waits until another program does, or say goal=[{','.join(names)}] here."
            )
