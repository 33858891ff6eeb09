"""Instructions of tasks of an arm with a hand."""

from __future__ import annotations

import torch

from sim.tasks.variants import TaskVariants

_TRAINING = ("lift the {}", "pick up the {}", "take the {}", "grasp the {} and lift it")
_NEW = ("pick the {} up", "take and lift the {}")
_OBJECTS = {"cube": "red cube", "ball": "blue ball"}
PICK = TaskVariants.of(_TRAINING, _NEW, _OBJECTS)
_VARIANTS = {"pick": PICK}
WORDINGS = {name: (*PICK.training[name], *PICK.new[name]) for name in PICK.names}


def tasks_of(name: str) -> tuple[str, ...]:
    """Variants of a task, which are the tasks of its environment; none for one without an instruction."""
    return _VARIANTS[name].names if name in _VARIANTS else ()


def task_number(tasks: tuple[str, ...], seed: int) -> int:
    """Index of the named variant in the episode of this seed."""
    variants = next(each for each in _VARIANTS.values() if each.names == tasks)
    return int(variants.number_of(torch.tensor([seed])))
