"""Instructions of MetaWorld tasks, in several wordings, and suites of tasks that are told apart by them."""

from __future__ import annotations

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import derive_seed

TRAINING = 4  # the first wordings of a task are for demonstrations, the others for evaluation only
WORDINGS: dict[str, tuple[str, ...]] = {
    "faucet-open-v3": (
        "open the faucet",
        "turn the faucet on",
        "open the tap",
        "turn on the tap",
        "please open the faucet",
        "let the water run, open the tap",
    ),
    "faucet-close-v3": (
        "close the faucet",
        "turn the faucet off",
        "close the tap",
        "turn off the tap",
        "please close the faucet",
        "stop the water, close the tap",
    ),
    "drawer-open-v3": (
        "open the drawer",
        "pull the drawer open",
        "pull out the drawer",
        "open up the drawer",
        "please open the drawer",
        "the drawer should be open",
    ),
    "drawer-close-v3": (
        "close the drawer",
        "push the drawer shut",
        "push in the drawer",
        "shut the drawer",
        "please close the drawer",
        "the drawer should be shut",
    ),
    "window-open-v3": (
        "open the window",
        "slide the window open",
        "open up the window",
        "slide open the window",
        "please open the window",
        "the window should be open",
    ),
    "window-close-v3": (
        "close the window",
        "slide the window shut",
        "shut the window",
        "slide shut the window",
        "please close the window",
        "the window should be shut",
    ),
    "reach-v3": (
        "reach the mark",
        "move the hand to the mark",
        "go to the mark",
        "bring the hand to the mark",
        "please reach the mark",
        "the hand should be at the mark",
    ),
    "push-v3": (
        "push the puck to the mark",
        "push the puck onto the goal",
        "move the puck to the mark",
        "slide the puck to the goal",
        "please push the puck to the mark",
        "the puck should be on the goal",
    ),
    "pick-place-v3": (
        "pick up the puck and hold it at the mark",
        "lift the puck to the mark",
        "pick the puck and place it at the goal",
        "grasp the puck and bring it to the goal",
        "please lift the puck to the mark",
        "take the puck up to the goal",
    ),
    "door-open-v3": (
        "open the door",
        "pull the door open",
        "swing the door open",
        "open up the door",
        "please open the door",
        "the door should be open",
    ),
    "button-press-topdown-v3": (
        "press the button",
        "push the button down",
        "press the button from above",
        "push down the button",
        "please press the button",
        "the button should be down",
    ),
    "peg-insert-side-v3": (
        "insert the peg",
        "put the peg into the hole",
        "insert the peg into the box",
        "plug in the peg",
        "please insert the peg",
        "the peg should be in the hole",
    ),
}
# Goals of these tasks are marks in the scene; in pictures of all other tasks the marks are hidden, because
# they would tell tasks with the same scene apart.
WITH_MARK = ("reach-v3", "push-v3", "pick-place-v3")
SUITES: dict[str, tuple[str, ...]] = {
    "mt6": (
        "faucet-open-v3",
        "faucet-close-v3",
        "drawer-open-v3",
        "drawer-close-v3",
        "window-open-v3",
        "window-close-v3",
    ),
    "mt10": (
        "reach-v3",
        "push-v3",
        "pick-place-v3",
        "door-open-v3",
        "drawer-open-v3",
        "drawer-close-v3",
        "button-press-topdown-v3",
        "peg-insert-side-v3",
        "window-open-v3",
        "window-close-v3",
    ),
}


def is_suite(name: str) -> bool:
    """True for a name of tasks with instructions: "mt6", tasks joined by "+", or one with "+" after it."""
    return name in SUITES or "+" in name


def tasks_of(name: str) -> tuple[str, ...]:
    """Tasks of a suite. Raises UnknownNameError for a task without instruction, ConfigError for one that is
    given twice.
    """
    if name in SUITES:
        return SUITES[name]
    tasks = tuple(name.removesuffix("+").split("+"))
    for task in tasks:
        if task not in WORDINGS:
            raise UnknownNameError("metaworld task with instructions", task, WORDINGS)
    if len(set(tasks)) < len(tasks):
        raise ConfigError(f"'{name}' names a task twice. Name each one once.")
    return tasks


def task_number(tasks: tuple[str, ...], seed: int) -> int:
    """Index of the task in the episode of this seed: a draw with equal chances."""
    return derive_seed("task", seed) % len(tasks)


def wording(task: str, seed: int, new: bool = False) -> str:
    """Instruction in the episode of this seed, one of the wordings for training or of the others."""
    known = WORDINGS[task][TRAINING:] if new else WORDINGS[task][:TRAINING]
    return known[derive_seed("wording", seed) % len(known)]
