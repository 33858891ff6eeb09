"""Environments and experts by name: "<suite>/<task>". A simulator is imported when one of its environments is
built.

Names of batched suites and of metaworld may carry options, "quad/race:track=splits,craft=cf21": verbs pass
names, and a policy keeps the name of the environment that it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

from robo_rl.core.errors import ConfigError, MissingDependencyError, UnknownNameError
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.packages import pip_install
from robo_rl.core.protocols import VecEnv
from robo_rl.core.registry import lookup
from robo_rl.core.spec import ROBOT_SUITE
from robo_rl.core.text.instruction import MOST_BYTES
from robo_rl.core.text.nearest import is_misspelt
from sim.adapters.gymnasium_names import check_no_file, in_gymnasium, own_environment
from sim.adapters.metaworld_instructions import is_suite, tasks_of
from sim.env_names import join_options, options_text, read_options
from sim.instructed_env import OPTION, InstructedEnv
from sim.tasks.table import OF_YOUR_OWN
from sim.vec.expert import Expert, WatchingExpert
from sim.vec.options import check_pixels
from sim.vec.workers import WorkerVecEnv

# suite -> (builder of its lanes, called as builder(task, **options); extra that installs its packages)
SUITES = {
    "metaworld": ("sim.adapters.metaworld:MetaWorldLanes", "sim"),
    "pusht": ("sim.adapters.pusht:PushTLanes", "sim"),
    "gym": ("sim.adapters.gymnasium_mujoco:GymnasiumLanes", "sim"),
    "arm6": ("sim.arms.arm6.lanes:ArmLanes", "sim"),
    "arm6 peg": ("sim.arms.arm6.peg_lane:PegLanes", "sim"),
    "gymrobotics": ("sim.adapters.gymnasium_robotics:RoboticsLanes", "gymrobotics"),
    "robosuite": ("sim.adapters.robosuite:RobosuiteLanes", "robosuite"),
    "envpool": ("sim.adapters.envpool:EnvPoolLanes", "envpool"),
    "recall": ("sim.tasks.recall.lane:RecallLanes", "sim"),
    "pybullet": ("sim.flight.bullet.vision_lane:VisionLanes", "pybullet"),
    "metaworld suite": ("sim.adapters.metaworld_words:WordsLanes", "sim"),  # of several tasks, see `_kind`
}
# suites of `sim.tasks.table.SUITES` -> the table of their tasks
SCENES = {"arm": "MANIPULATION", "mobile": "MOBILE", "hand": "IN_HAND", "arm_hand": "ARM_HAND"}
# suites whose engines step all lanes at once, without workers -> (builder, names of its tasks, options)
BATCHED = {
    "quad": (
        "sim.flight.vec_env:make_quad_env",
        "sim.tasks.flight.names:TASKS",
        "sim.flight.setting:QuadEnvOptions",
    ),
    "drone": (
        "sim.flight.seek.vec_env:SeekVecEnv",
        "sim.flight.seek.words:TASKS",
        "sim.flight.seek.vec_env:SeekVecEnv",
    ),
    **{
        suite: (
            "sim.scenes.task_env:make_task_env",
            f"sim.tasks.table:{tasks}",
            "sim.tasks.table:TaskOptions",
        )
        for suite, tasks in SCENES.items()
    },
    "isaaclab": (
        "sim.adapters.isaaclab.vec_env:make_isaaclab",
        "sim.adapters.isaaclab.vec_env:TASKS",
        "sim.adapters.isaaclab.vec_env:make_isaaclab",
    ),
}
OPEN = ("isaaclab",)  # batched suites that know other names, too
TOLD = {  # suites of several tasks with an instruction each -> their tasks and wordings
    "metaworld suite": "sim.adapters.metaworld_instructions",
    "drone": "sim.flight.seek.words",
    "arm_hand": "sim.tasks.arm_hand.words",
}
ENVELOPES = {"drone": "sim.flight.seek.task:ENVELOPE"}  # flight envelope of a suite's bundles
SPARSE_ONLY = ("recall", "drone")  # suites without reward=dense
WITH_OPTIONS = ("metaworld", "arm6", "pybullet", *BATCHED)  # suites whose names may carry options
TASKS = {  # suite -> (names of its tasks; True where these are all)
    "metaworld": ("sim.adapters.metaworld_tasks:NAMES", True),
    "pusht": ("sim.adapters.pusht:VARIANTS", True),
    "gym": ("sim.adapters.gymnasium_mujoco:IDS", False),
    "arm6": ("sim.arms.arm6.names:TASKS", True),
    "gymrobotics": ("sim.adapters.gymnasium_robotics:IDS", False),
    "robosuite": ("sim.adapters.robosuite:TASKS", True),
    "envpool": ("sim.adapters.envpool:IDS", False),
    "recall": ("sim.tasks.recall.buttons:TASKS", True),
    "pybullet": ("sim.tasks.flight.names:BY_CAMERA", True),
}
EXPERTS = {  # suite -> called as expert(task, noise, seed)
    "metaworld": ("sim.adapters.metaworld_expert:MetaWorldExpert", "sim"),
    "quad": ("sim.flight.expert:FlightExpert", None),
    "drone": ("sim.flight.seek.expert:SeekExpert", None),
    "arm6": ("sim.arms.arm6.expert:ArmExpert", "sim"),
    "arm6 peg": ("sim.arms.arm6.peg_expert:PegExpert", "sim"),
    "scene": ("sim.scenes.expert:SceneExpert", "sim"),
    "recall": ("sim.tasks.recall.expert:RecallExpert", None),
    "metaworld suite": ("sim.adapters.metaworld_words:WordsExpert", "sim"),
}


def list_envs() -> list[str]:
    """Names that `make_env` accepts, besides "gym/<id>" for any Gymnasium environment with box actions."""
    suites = dict.fromkeys((*TASKS, *BATCHED))
    return [f"{suite}/{task}" for suite in suites for task in _tasks(suite)]


def tasks_in(name: str) -> tuple[str, ...]:
    """Tasks of an environment of several tasks, in the order of its `info["task"]`; empty for one task, and
    for a name that is not known here.
    """
    source, task = _instruction_source(name)
    return () if source is None else source.tasks_of(task)


def envelope_in(name: str) -> FlightEnvelope | None:
    """Flight envelope that a bundle for this environment carries; None without one. Bundles of `robo-rl fly`
    carry that of their measured flights.
    """
    suite = name.partition("/")[0]
    if suite not in ENVELOPES:
        return None
    module, attribute = ENVELOPES[suite].split(":")
    found: FlightEnvelope = getattr(import_module(module), attribute)
    return found


def _instruction_source(name: str) -> tuple[Any, str]:
    """Module of `TOLD` of an environment, None for one task, and its name without suite and options."""
    suite, _, task = name.partition("/")
    module = TOLD.get(_kind(suite, task))
    # The colon of gym/my_envs:Mine-v0 separates no options.
    return (None, task) if module is None else (import_module(module), read_options(task)[0])


def task_in(name: str, seed: int) -> int:
    """Index in `tasks_in(name)` of the task in the episode of this seed; 0 with one task."""
    source, task = _instruction_source(name)
    return 0 if source is None else int(source.task_number(source.tasks_of(task), seed))


def numbers_of(name: str, tasks: Sequence[str]) -> list[int]:
    """Indices in `tasks_in(name)` of the named tasks, in the environment's order; of all if none is named.

    Raises ConfigError in an environment of one task if any is named, and UnknownNameError for a task that the
    suite has not.
    """
    known = tasks_in(name)
    if tasks and not known:
        raise ConfigError(
            f"{name} is one task: tasks= needs a suite, such as suite=metaworld/mt6. Leave it out."
        )
    for task in tasks:
        if task not in known:
            raise UnknownNameError(f"task of {name}", task, known)
    return [i for i, task in enumerate(known) if not tasks or task in tasks]


def longest_instruction(name: str) -> int:
    """Bytes of the longest instruction that the environment gives; the most that there may be if unknown."""
    source, tasks = _instruction_source(name)[0], tasks_in(name)
    each = [len(text.encode()) for task in tasks for text in source.WORDINGS[task]]
    return max(each, default=MOST_BYTES)


def _kind(suite: str, task: str) -> str:
    """Key of a name in `SUITES` and `EXPERTS`."""
    if suite == "metaworld" and is_suite(read_options(task)[0]):
        return "metaworld suite"
    return "arm6 peg" if suite == "arm6" and read_options(task)[0] == "peg" else suite


def make_env(
    name: str, num_envs: int, num_workers: int = 0, *, timeout_s: float = 60.0, **options: Any
) -> VecEnv:
    """A vector environment of `num_envs` lanes; see `sim.vec.workers` for `num_workers` and `timeout_s`.

    Options: `max_episode_steps`, `render_size` (px), except for quad also `reward` ("sparse" or "dense") and,
    except for pusht, `terminate_on_success`; an option that is None is left at its default. A name that
    carries options may have `instruction=...`, see `InstructedEnv`. Raises UnknownNameError for a name or
    option that does not exist, MissingDependencyError when the suite's packages are not installed.
    """
    suite, task = _split("environment", name)
    if suite in WITH_OPTIONS and OPTION in (written := options_text(name)[1]):
        words = written.pop(OPTION)
        bare = options_text(name)[0] + ":" * bool(written) + join_options(written)
        env = make_env(bare, num_envs, num_workers, timeout_s=timeout_s, **options)
        return InstructedEnv(env, words, with_option(env.spec.name, OPTION, words))
    given = {option: value for option, value in options.items() if value is not None}
    if _is_batched(suite, task):
        bare, written = read_options(task)
        return _batched(suite, bare, num_envs, written | given)
    builder = lookup("suite", SUITES, _kind(suite, task))
    _check_installed(suite)
    known = [field.name for field in fields(builder)][1:]  # the first is the task
    if suite in WITH_OPTIONS:
        task, written = read_options(task)
        given = written | given
    for option in given:
        if option not in known:
            raise UnknownNameError(f"option of {suite} environments", option, known)
    _check_render_size(given)
    return WorkerVecEnv(builder(task, **given), num_envs, num_workers, timeout_s=timeout_s)


def option_of(name: str, option: str) -> Any:
    """Value of an option of an environment, its default where the name does not give it; None for an unknown
    option.
    """
    suite, task = _split("environment", name)
    if suite not in WITH_OPTIONS or option not in (known := _options_of(suite, task)):
        return None
    return read_options(task)[1].get(option, known[option].default)


def instruction_of(name: str) -> str | None:
    """The instruction in the name of an environment; None without one."""
    suite, _, task = name.partition("/")
    return options_text(task)[1].get(OPTION) if suite in WITH_OPTIONS else None


def same_task(first: str, second: str) -> bool:
    """True if two names mean one task, or one of them a suite that holds the other.

    Options, such as an engine, may differ, and a Gymnasium environment may be named with or without its
    module.
    """
    one, other = _bare(first), _bare(second)
    return one == other or any(
        task.partition("/")[2] in tasks_in(suite) for suite, task in ((one, other), (other, one))
    )


def _bare(name: str) -> str:
    suite, _, task = name.partition("/")
    if suite == "gym":
        return f"{suite}/{task.rpartition(':')[2]}"
    return name.partition(":")[0]


def with_option(name: str, option: str, value: Any) -> str:
    """Name of the same environment with one option changed."""
    bare, written = options_text(name)
    return f"{bare}:{join_options({**written, option: value})}"


def has_dense_reward(name: str, reward: str | None = None) -> bool:
    """True where every step of this environment pays, not success alone. reward: the option, None when not
    given.
    """
    suite, task = _split("environment", name)
    if suite in SPARSE_ONLY:
        return False
    if suite in WITH_OPTIONS:
        options = _options_of(suite, task)
        written = read_options(task)[1].get("reward")
        return "reward" not in options or (reward or written or options["reward"].default) == "dense"
    chosen = {item.name: item.default for item in fields(lookup("suite", SUITES, _kind(suite, task)))}.get(
        "reward", "dense"
    )
    return (reward or chosen) == "dense"


def _batched(suite: str, task: str, num_envs: int, given: dict[str, Any]) -> VecEnv:
    known = list(_options_of(suite, task))
    for option in given:
        if option not in known:
            raise UnknownNameError(f"option of {suite} environments", option, known)
    _check_render_size(given)
    env: VecEnv = _attribute(BATCHED[suite][0])(task, num_envs, **given)
    return env


def _check_render_size(given: dict[str, Any]) -> None:
    """Raise ConfigError for a video that no renderer can draw: its own error would blame OpenGL."""
    if "render_size" in given:
        check_pixels("render_size", given["render_size"], 4096)


def _options_of(suite: str, task: str) -> dict[str, Any]:
    """Options that a task's builder takes besides the task and the number of lanes."""
    path = BATCHED[suite][2] if suite in BATCHED else SUITES[_kind(suite, task)][0]
    parameters = signature(_attribute(path)).parameters
    return {name: item for name, item in parameters.items() if name not in ("task", "num_envs")}


def _is_batched(suite: str, task: str) -> bool:
    return suite in OPEN or (suite in BATCHED and read_options(task)[0] in _attribute(BATCHED[suite][1]))


def skilled() -> list[str]:
    """Suites whose tasks have scripted experts."""
    return sorted({*EXPERTS, *SCENES} - {"scene", "metaworld suite", "arm6 peg"})


def has_expert(name: str) -> bool:
    """True if the environment has a scripted expert. Raises UnknownNameError for an unknown environment."""
    return _split("environment", name)[0] in (*EXPERTS, *SCENES)


def make_expert(name: str, noise: float = 0.0, seed: int = 0, env: VecEnv | None = None) -> Expert:
    """The scripted expert of an environment. Raises ConfigError for suites that have none.

    env: the environment in whose lanes it will act; a `WatchingExpert` needs it, here or by its `watch`.
    """
    suite, task = _split("environment", name)
    if not has_expert(name):
        raise ConfigError(
            f"There is no scripted expert for '{name}'; only {', '.join(skilled())} tasks have one."
        )
    batched = _is_batched(suite, task)
    if not batched:
        _check_installed(suite)
    kind = "scene" if suite in SCENES and batched else _kind(suite, task)
    expert: Expert = lookup("expert", EXPERTS, kind)(read_options(task)[0], noise, seed)
    if env is not None and isinstance(expert, WatchingExpert):
        expert.watch(env.unwrapped if isinstance(env, InstructedEnv) else env)
    return expert


def _split(kind: str, name: str) -> tuple[str, str]:
    suite, _, task = name.partition("/")
    if suite == ROBOT_SUITE and task == "sim_arm":
        raise ConfigError(
            f"'{name}' is a robot. The cell in which robo-rl record simulates it is the environment "
            "arm6/peg: give env=arm6/peg. Try its policies there: robo-rl export policy=... out=<bundle>, "
            "then robo-rl record robot=sim_arm policy=<bundle>."
        )
    if suite == ROBOT_SUITE and task == "sim_arm_gripper":
        raise ConfigError(
            f"'{name}' is a simulated robot of robo-rl record without a task. Try its policies there: "
            f"robo-rl export policy=... out=<bundle>, then robo-rl record robot={task} policy=<bundle>."
        )
    if suite == ROBOT_SUITE:
        raise ConfigError(
            f"'{name}' is a robot that was recorded, and there is no simulator of it here. Its policies are "
            "tried on the robot: robo-rl export, contract, then up. To evaluate in a simulated task "
            "with the same contract, import the robot's recordings anew with env=<that task>."
        )
    if suite == "quad" and read_options(task)[0] == "swarm":
        raise ConfigError(
            f"'{name}' has many drones, and no environment by name. robo-rl swarm trains and measures its "
            "policies; robo-rl transfer run=<run> or bundle=<bundle> measures one again, in PyBullet too."
        )
    if suite == "gym" or suite not in (*SUITES, *BATCHED):
        check_no_file(name)
    bare = read_options(task)[0] if suite in WITH_OPTIONS else task
    if suite == "metaworld" and is_suite(bare):
        tasks_of(bare)  # raises for an unknown one
        return suite, task
    closed = suite not in OPEN and (suite not in TASKS or TASKS[suite][1])  # True where these are all names
    if suite not in (*SUITES, *BATCHED) or not task or (closed and bare not in _tasks(suite)):
        every = list_envs()
        own = [each for each in every if each.startswith(f"{suite}/")]
        elsewhere = [each for each in every if each.endswith(f"/{bare or name}")]
        near = [each for each in own if bare in each] + elsewhere if elsewhere else own or every
        slip = is_misspelt(name, own)  # metaworld/reach is no misspelt arm/reach
        if (":" in suite or not (slip or elsewhere or own)) and (meant := in_gymnasium(name)):
            raise ConfigError(
                f"Unknown {kind} '{name}'. Did you mean 'gym/{meant}'? Environments of Gymnasium have the "
                "prefix gym/."
            )
        raise UnknownNameError(
            kind,
            name,
            own if slip else near,
            "robo-rl info",
            OF_YOUR_OWN if suite in SCENES else own_environment(name, every),
        )
    return suite, task


def _tasks(suite: str) -> tuple[str, ...]:
    tables = [TASKS[suite][0]] if suite in TASKS else []
    tables += [BATCHED[suite][1]] if suite in BATCHED else []
    return tuple(name for table in tables for name in _attribute(table))


def _check_installed(suite: str) -> None:
    """Check here, not in a worker, so that the user sees the message without a traceback."""
    path, extra = SUITES[suite]
    for package in _attribute(path.split(":")[0] + ":REQUIRES"):
        if find_spec(package) is None:
            raise MissingDependencyError(
                f"'{suite}' environments need the package '{package}', which is not installed. "
                f"Run: {pip_install(extra)}"
            )


def _attribute(path: str) -> Any:
    module, attribute = path.split(":")
    return getattr(import_module(module), attribute)
