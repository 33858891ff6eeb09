"""Short forms of the command line: `task=... engine=...`, and words without a key such as `robo-rl up <set>`.

`suite=<name>` is `env=<name>`. `train task=<a flight>` becomes the verb that trains it from scratch. For
arms, task, engine, robot and control become the environment's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from robo_rl.conf.dotted import quoted
from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.tasks.table import NAME_OPTIONS, OF_YOUR_OWN, all_tasks, suite_of

FLIGHT_TASKS = {
    "hover": "hover",
    "figure8": "figure8",
    "trajectory": "figure8",
    "waypoints": "waypoints",
    "race": "race",
    "obstacles": "obstacles",
}
FIRST_WORD = {  # verbs whose first word needs no key, and the key
    "up": "set",
    "call": "service",
    "topic info": "topic",
    "topic echo": "topic",
    "topic hz": "topic",
}
_OF_SCENES = (
    "view",
    "collect",
    "evaluate",
    "finetune",
    "run",
    "identify",
)  # verbs whose env= can be given as task=
OBSERVED = ("cameras", "state", "senses", "points", "image_size")  # options that env= takes beside its name
_OF_OTHER_VERBS = {"swarm": "swarm", "mission": "mission", "vision": "vision", "vision_hover": "vision"}


def by_engine(verb: str, arguments: list[str]) -> tuple[str, list[str]]:
    """Verb that trains this task in this engine, and the remaining arguments.

    Raises ConfigError for an engine that trains nothing, UnknownNameError for a task that is not a flight.
    """
    if verb in FIRST_WORD and arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        return verb, [f"{FIRST_WORD[verb]}={arguments[0]}", *arguments[1:]]
    if verb == "compare" and (
        first := list(takewhile(lambda word: "=" not in word and word[:1] != "-", arguments))
    ):
        return verb, [f"runs=[{','.join(map(quoted, first))}]", *arguments[len(first) :]]
    if verb in _OF_SCENES and not any(word.startswith("env=") for word in arguments):
        arguments = [f"env={word[6:]}" if word.startswith("suite=") else word for word in arguments]
    given = dict(word.split("=", 1) for word in arguments if "=" in word)
    if verb in _OF_SCENES and "task" in given and not _is_note(verb, given):
        return verb, _scene(given, arguments)
    if verb in _OF_SCENES and "env" in given and given.keys() & set(OBSERVED):
        return verb, _observing(given, arguments)
    if verb == "train" and given.get("task") in all_tasks():
        raise ConfigError(
            f"A policy for task={given['task']} is trained on demonstrations. Record some, then train on "
            f"them: robo-rl collect task={given['task']} out=data/{given['task']}; robo-rl train "
            f"data=data/{given['task']} out=runs/{given['task']}. Learning from scratch: robo-rl finetune "
            f"task={given['task']} method=sac."
        )
    if verb == "fly" and (task := given.get("task")) in FLIGHT_TASKS:
        return verb, [f"task={FLIGHT_TASKS[task]}" if word == f"task={task}" else word for word in arguments]
    if verb != "train" or not ({"engine", "task"} & given.keys()):
        return verb, arguments
    return _flight(given, arguments)


def typed_verb(verb: str, arguments: Sequence[str], meant: str) -> str:
    """The verb as it was typed, for messages: "train task=race" where `by_engine` means another one."""
    if verb == meant:
        return verb
    task = next((word for word in arguments if word.startswith(("task=", "engine="))), "")
    return f"{verb} {task}".rstrip()


def scene_words(verb: str) -> tuple[str, ...]:
    """Keys used with task= in this verb that are not its own settings: robot, engine, cameras, ..."""
    return NAME_OPTIONS if verb in _OF_SCENES else ()


def flight_names() -> tuple[str, ...]:
    """Names that task= of `train` accepts."""
    return (*FLIGHT_TASKS, *_OF_OTHER_VERBS)


def _is_note(verb: str, given: dict[str, str]) -> bool:
    """True if task= of `collect` is an instruction, beside env= or policy=. Raises ConfigError if it is the
    name of another task than that of env=.
    """
    if verb == "collect" and "policy" in given and "env" not in given:
        return given["task"] not in all_tasks()
    if verb != "collect" or "env" not in given:
        return False
    task, env = given["task"], given["env"]
    if task in all_tasks() and env.partition(":")[0] != f"{suite_of(task)}/{task}":
        raise ConfigError(
            f"task={task} with env={env} would be an instruction stored with every episode. To collect "
            f"{task}, leave env= out; an instruction must be more than the name of a task."
        )
    return True


def _flight(given: dict[str, str], arguments: list[str]) -> tuple[str, list[str]]:
    """`train task=race engine=quad` as `fly task=race`: the verb that trains the flight, without the default
    engine.
    """
    task = given.get("task", "hover")
    if task not in flight_names():
        raise UnknownNameError("task", task, (*flight_names(), *all_tasks()), advice=OF_YOUR_OWN)
    if "data" in given:
        raise ConfigError(
            f"task={task} is learned from scratch, without data=. Leave data={given['data']} out, or leave "
            "task= out to learn from that dataset."
        )
    verb = _OF_OTHER_VERBS.get(task, "fly")
    engine, home = given.get("engine"), "pybullet" if verb == "vision" else "quad"
    if engine not in (None, "quad", "pybullet"):
        raise UnknownNameError("engine", engine, ("quad", "pybullet"))
    rest = [word for word in arguments if not word.startswith("task=")]
    if verb == "fly":
        return verb, [f"task={FLIGHT_TASKS[task]}", *rest]
    if verb == "swarm":
        return verb, rest
    if engine not in (None, home):
        raise ConfigError(
            f"task={task} runs in engine={home} only, found engine={engine}. Leave engine= out; other "
            "flights accept engine=quad and engine=pybullet."
        )
    return verb, [word for word in rest if not word.startswith("engine=")]


def _scene(given: dict[str, str], arguments: list[str]) -> list[str]:
    """`task=lift engine=pybullet` as `env=arm/lift:engine=pybullet`."""
    name = f"{suite_of(given['task'])}/{given['task']}"
    if "env" in given:
        raise ConfigError(
            f"Give either task={given['task']}, which stands for env={name}, or env=, not both."
        )
    words = ",".join(f"{key}={given[key]}" for key in NAME_OPTIONS if key in given)
    rest = [word for word in arguments if word.split("=", 1)[0] not in ("task", *NAME_OPTIONS)]
    return [f"env={name}{':' if words else ''}{words}", *rest]


def _observing(given: dict[str, str], arguments: list[str]) -> list[str]:
    """`env=arm/lift cameras=view` as `env=arm/lift:cameras=view`."""
    words = ",".join(f"{key}={given[key]}" for key in OBSERVED if key in given)
    name = f"{given['env']}{',' if ':' in given['env'] else ':'}{words}"
    return [f"env={name}", *(word for word in arguments if word.split("=", 1)[0] not in ("env", *OBSERVED))]
