"""`robo-rl train task=... engine=...`: training by an engine's own verb; words without a key: `robo-rl up <set>`.

Arms are trained on a dataset; what flies is trained from nothing, by another verb with other settings. Whoever names an
engine is led there.
"""

from __future__ import annotations

from robo_rl.core.errors import ConfigError, UnknownNameError

FLIGHT_TASKS = {
    "hover": "hover",
    "figure8": "figure8",
    "trajectory": "figure8",
    "waypoints": "waypoints",
    "race": "race",
    "obstacles": "obstacles",
}
FIRST_WORD = {"up": "set", "call": "service"}  # verbs whose first word needs no key
_SWARM, _VISION = "swarm", "vision_hover"


def by_engine(verb: str, arguments: list[str]) -> tuple[str, list[str]]:
    """The verb that trains this task in this engine, and what is left of the arguments.

    Raises ConfigError for an engine that trains nothing, UnknownNameError for a task that is not flown.
    """
    if verb in FIRST_WORD and arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        return verb, [f"{FIRST_WORD[verb]}={arguments[0]}", *arguments[1:]]
    given = dict(word.split("=", 1) for word in arguments if "=" in word)
    if verb != "train" or "engine" not in given:
        return verb, arguments
    engine, task = given["engine"], given.get("task", "hover")
    if engine == "pybullet" and task == _VISION:
        return "vision", [word for word in arguments if not word.startswith("engine=")]
    if engine == "pybullet":
        raise ConfigError(
            f"engine=pybullet has no gradients to train task={task} by. Train it with engine=quad and fly the policy, "
            "unchanged, in PyBullet: robo-rl transfer run=<its folder>."
        )
    if engine != "quad":
        raise UnknownNameError("engine", engine, ("quad", "pybullet"))
    rest = [word for word in arguments if not word.startswith(("engine=", "task="))]
    if task == _SWARM:
        return _SWARM, rest
    if task not in FLIGHT_TASKS:
        raise UnknownNameError("task", task, (*FLIGHT_TASKS, _SWARM))
    return "fly", [f"task={FLIGHT_TASKS[task]}", *rest]
