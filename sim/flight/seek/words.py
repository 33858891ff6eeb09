"""Instructions of `drone/seek`: which ball to fly to, in several wordings."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.shapes import Int64
from sim.tasks.variants import TaskVariants

COLOURS: dict[str, tuple[float, float, float]] = {  # RGB, 0 ... 1
    "red": (0.85, 0.12, 0.1),
    "green": (0.1, 0.65, 0.2),
    "blue": (0.1, 0.3, 0.9),
    "yellow": (0.95, 0.8, 0.1),
}
TASKS = ("seek",)
TRAINING = (  # of demonstrations
    "fly to the {} ball",
    "go to the {} ball",
    "approach the {} ball",
    "stop in front of the {} ball",
)
NEW = ("go to the ball that is {}", "fly in front of the {} ball")  # for evaluation only
VARIANTS = TaskVariants.of(TRAINING, NEW, {colour: colour for colour in COLOURS})
WORDINGS = {colour: (*VARIANTS.training[colour], *VARIANTS.new[colour]) for colour in COLOURS}
_TOLD = 1  # stream of an episode's random numbers


def tasks_of(name: str) -> tuple[str, ...]:
    """The colours, which are the tasks of the environment; none for a name that no environment has."""
    return tuple(COLOURS) if name in TASKS else ()


def task_number(tasks: tuple[str, ...], seed: int) -> int:
    """Index of the told colour in the episode of this seed."""
    return int(colour_number(torch.tensor([seed])))


def colour_number(seeds: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """Number of the told colour in `COLOURS`: a draw with equal chances."""
    return VARIANTS.number(keyed_uniform(seeds, 0, 1, _TOLD)[0]).long()


def wording_number(seeds: Int64[Tensor, " n"], count: int) -> Int64[Tensor, " n"]:
    """Number of the wording, of `count`."""
    return (keyed_uniform(seeds, 1, 1, _TOLD)[0] * count).long()
