"""Instructions of tasks of an arm with a hand."""

from __future__ import annotations

import torch

from sim.tasks.told import Told

_TRAINING = ("lift the {}", "pick up the {}", "take the {}", "grasp the {} and lift it")
_NEW = ("pick the {} up", "take and lift the {}")
_OBJECTS = {"cube": "red cube", "ball": "blue ball"}
PICK = Told(
    {name: tuple(text.format(words) for text in _TRAINING) for name, words in _OBJECTS.items()},
    {name: tuple(text.format(words) for text in _NEW) for name, words in _OBJECTS.items()},
)
_TOLD = {"pick": PICK}
WORDINGS = {name: (*PICK.training[name], *PICK.new[name]) for name in PICK.variants}


def tasks_of(name: str) -> tuple[str, ...]:
    """Variants of a task, which are the tasks of its environment; none for one that is told nothing."""
    return _TOLD[name].variants if name in _TOLD else ()


def task_number(tasks: tuple[str, ...], seed: int) -> int:
    """Index of the told variant in the episode of this seed."""
    told = next(told for told in _TOLD.values() if told.variants == tasks)
    return int(told.number_of(torch.tensor([seed])))
