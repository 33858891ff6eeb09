"""Tasks of arms, mobile bases and hands by suite and name, and the options that all of them take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.registry import lookup
from robo_rl.core.settings import setting
from sim.vec.options import check_pixels, check_reward, check_steps

if TYPE_CHECKING:  # names must be listed without a simulator
    from sim.bodies.protocol import Body, SceneTask

Tasks = dict[str, tuple[str, str | None]]
MANIPULATION: Tasks = {  # name -> (class, called with the task's own settings; extra to install, or None)
    "reach": ("sim.tasks.arm.reach:ReachTask", None),
    "lift": ("sim.tasks.arm.lift:LiftTask", None),
    "stack": ("sim.tasks.arm.stack:StackTask", None),
    "drawer": ("sim.tasks.arm.drawer:DrawerTask", None),
    "peg_insert": ("sim.tasks.arm.peg_insert:PegInsertTask", None),
    "push_t": ("sim.tasks.arm.push_t:PushTTask", None),
    "unscrew": ("sim.tasks.arm.unscrew:UnscrewTask", None),
    "pour": ("sim.tasks.arm.pour:PourTask", None),
}
MOBILE: Tasks = {
    "navigate": ("sim.tasks.mobile.navigate:NavigateTask", None),
    "rearrange": ("sim.tasks.mobile.rearrange:RearrangeTask", None),
}
IN_HAND: Tasks = {
    "reorient": ("sim.tasks.hand.reorient:ReorientTask", None),
}
ARM_HAND: Tasks = {
    "pick": ("sim.tasks.arm_hand.pick:PickTask", None),
}


class Suite(NamedTuple):
    """Tasks that command the same kind of body, made by `body(task, options)`: see `sim.bodies.protocol`."""

    tasks: Tasks
    body: str
    members: str  # protocol of its tasks
    defaults: Mapping[str, str]  # `robot` and `control` where the options give none


SUITES = {
    "arm": Suite(
        MANIPULATION,
        "sim.arms.drive:ArmBody",
        "sim.arms.drive:ManipulationTask",
        {"robot": "panda", "control": "cartesian"},
    ),
    "mobile": Suite(
        MOBILE,
        "sim.mobile.body:MobileBody",
        "sim.mobile.drive:BaseTask",
        {"robot": "freight", "control": "twist"},
    ),
    "hand": Suite(
        IN_HAND,
        "sim.hands.drive:HandBody",
        "sim.hands.drive:HandTask",
        {"robot": "hand4", "control": "joint_position"},
    ),
    "arm_hand": Suite(
        ARM_HAND,
        "sim.hands.mounted:ArmHandBody",
        "sim.arms.drive:ManipulationTask",
        {"robot": "panda", "control": "cartesian"},
    ),
}
NAME_OPTIONS = (
    "engine",
    "robot",
    "control",
    "radius_m",
    "clearance_mm",
    "goal",
    "coverage",
    "turns",
    "beads",
    "randomise",
    "actuator",
    "cameras",
    "state",
    "senses",
    "points",
    "image_size",
    "threads",
)  # options that verbs take beside `task=` and write into the environment's name
TASK_SETTINGS = {
    "reach": ("radius_m",),
    "peg_insert": ("clearance_mm",),
    "push_t": ("coverage",),
    "unscrew": ("turns",),
    "pour": ("beads",),
    "reorient": ("goal",),
}
OF_YOUR_OWN = "A task of your own: name its module in ROBO_RL_PLUGINS."
_PAGE = "docs/own-robot-task-engine.md"
_NOT_IN_NAME = (
    "compiled",
    "device",
    "max_episode_steps",
    "threads",
    "render_size",
    "pretty",
    "reward",
    "terminate_on_success",
)  # options that do not matter to a policy


_TEXT, _NUMBER, _WHOLE, _FLAG = (str,), (int, float), (int,), (bool,)
_TYPES: dict[str, tuple[type, ...]] = {
    "engine": _TEXT,
    "robot": (*_TEXT, type(None)),
    "control": (*_TEXT, type(None)),
    "clearance_mm": (*_NUMBER, type(None)),
    "radius_m": (*_NUMBER, type(None)),
    "randomise": _TEXT,
    "reward": _TEXT,
    "actuator": _TEXT,
    "terminate_on_success": (*_FLAG, type(None)),
    "max_episode_steps": (*_WHOLE, type(None)),
    "threads": _WHOLE,
    "render_size": _WHOLE,
    "pretty": _FLAG,
    "cameras": _TEXT,
    "image_size": _WHOLE,
    "senses": _TEXT,
    "state": _TEXT,
    "points": _WHOLE,
    "goal": (*_TEXT, type(None)),
    "coverage": (*_NUMBER, type(None)),
    "turns": (*_NUMBER, type(None)),
    "beads": (*_WHOLE, type(None)),
    "wordings": _TEXT,
    "compiled": (*_FLAG, type(None)),
    "device": (*_TEXT, type(None)),
}
_TYPE_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "none",
}


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options of an environment, as its name spells them: `arm/lift:engine=pybullet,control=joint_velocity`.

    Raises ConfigError for values of the wrong type or out of range.
    """

    engine: str = setting("mujoco", "physics engine: mujoco, pybullet, mjwarp, isaacgym")
    robot: str | None = setting(None, "robot by name, or a YAML file; none: the suite's (arms: panda)")
    control: str | None = setting(
        None, "control mode, for arms cartesian, joint_velocity or joint_position; none: the suite's"
    )
    radius_m: float | None = setting(None, "reach: distance from the goal that counts as success [m]")
    clearance_mm: float | None = setting(
        None, "peg_insert: distance between peg and wall of the hole, on either side [mm]"
    )
    goal: str | None = setting(None, "reorient: upright (turned about the vertical) or any orientation")
    coverage: float | None = setting(None, "push_t: share of the target's area to cover")
    turns: float | None = setting(None, "unscrew: turns until the cap is free")
    beads: int | None = setting(None, "pour: number of beads in the cup")
    randomise: str = setting(
        "none", "randomisation of physics: none, a preset (mild, wide, mobile) or a YAML file"
    )
    actuator: str = setting(
        "none", "actuator model: none (ideal), a preset (dc_motor, lag, geared, hobby) or a YAML file"
    )
    reward: str = setting("sparse", "sparse: 1 at success; dense: the task's shaped reward")
    terminate_on_success: bool | None = setting(
        None, "end episodes at success; none: with sparse rewards only, as dense ones would favour delay"
    )
    max_episode_steps: int | None = setting(None, "length of an episode in steps; none: the task's own")
    threads: int = setting(0, "threads of the mujoco engine, processes of pybullet; 0: one per processor")
    render_size: int = setting(240, "height and width of rendered video [px]")
    pretty: bool = setting(False, "rendered video with shadows, reflections and smooth edges")
    cameras: str = setting(
        "", 'cameras to observe, joined by "+": "view+front"; each gives an observation image.<camera>'
    )
    state: str = setting(
        "all",
        '"all": what the task observes; "robot": only what a robot measures itself, and its goal; "body": '
        "without the goal",
    )
    senses: str = setting("rgb", 'senses of the cameras, joined by "+": "rgb+depth+points+segmentation"')
    points: int = setting(512, "number of points in each point cloud")
    image_size: int = setting(84, "height and width of each camera image [px]")
    wordings: str = setting("training", "pick: wordings of the instructions: training, or new")
    compiled: bool | None = setting(None, "compile the physics; none: from 64 environments on")
    device: str | None = setting(None, "device of engines that can choose; none: a GPU if there is one")

    def __post_init__(self) -> None:
        for name, kinds in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                words = " or ".join(
                    _TYPE_NAMES[kind] for kind in kinds if kind is not int or float not in kinds
                )
                raise ConfigError(f"{name} is {value!r}; expected {words}.")
        check_reward(self.reward)
        if self.max_episode_steps is not None:
            check_steps(self.max_episode_steps)
        if not 1 <= self.points <= 65536:
            raise ConfigError(f"points is {self.points}; expected 1 to 65536.")
        check_pixels("image_size", self.image_size)
        check_pixels("render_size", self.render_size, 4096)

    @property
    def ends_with_success(self) -> bool:
        """True where an episode ends at success."""
        return self.reward == "sparse" if self.terminate_on_success is None else self.terminate_on_success

    def name_suffix(self, suite: str) -> str:
        """`:option=value,...` of the options that differ from the defaults and matter to a policy."""
        defaults = {field.name: field.default for field in fields(self)} | dict(SUITES[suite].defaults)
        changed = [
            f"{name}={_absolute_path(getattr(self, name))}"
            for name, value in defaults.items()
            if name not in _NOT_IN_NAME and getattr(self, name) not in (None, value)
        ]
        return f":{','.join(changed)}" if changed else ""


def suite_of(task: str) -> str:
    """The suite of a task; task names are unique over suites. Raises UnknownNameError."""
    for name, suite in SUITES.items():
        if task in suite.tasks:
            return name
    raise UnknownNameError("task", task, all_tasks(), advice=OF_YOUR_OWN)


def all_tasks() -> tuple[str, ...]:
    """Names of all tasks, suite by suite."""
    return tuple(task for suite in SUITES.values() for task in suite.tasks)


def make_task(name: str, options: TaskOptions) -> SceneTask:
    """The task with its settings. Raises UnknownNameError, ConfigError for a setting of another task and for
    a task that lacks a member.
    """
    suite = suite_of(name)
    kind: Any = lookup("task", SUITES[suite].tasks, name)
    given = {
        setting_name: getattr(options, setting_name)
        for settings in TASK_SETTINGS.values()
        for setting_name in settings
        if getattr(options, setting_name) is not None
    }
    for setting_name in given:
        if setting_name not in TASK_SETTINGS.get(name, ()):
            has = ", ".join(other for other, settings in TASK_SETTINGS.items() if setting_name in settings)
            raise ConfigError(
                f"{suite}/{name} has no {setting_name}={given[setting_name]} to set; {has} has."
            )
    task: SceneTask = kind(**given)
    if missing := [member for member in _members(SUITES[suite].members) if not hasattr(task, member)]:
        raise ConfigError(f"{SUITES[suite].tasks[name][0]} lacks {', '.join(missing)}, see {_PAGE}.")
    return task


def _members(path: str) -> list[str]:
    """Names of the attributes and methods of a protocol, and of those it extends."""
    protocol = lookup("protocol", {"members": (path, None)}, "members")
    each = [own for kind in reversed(protocol.__mro__) for own in (*get_annotations(kind), *vars(kind))]
    return [own for own in dict.fromkeys(each) if not own.startswith("_")]


def make_body(name: str, task: SceneTask, options: TaskOptions) -> Body:
    """The body that this task commands. Raises UnknownNameError, ConfigError for a robot of another kind."""
    suite = SUITES[suite_of(name)]
    resolved = replace(
        options,
        robot=options.robot or suite.defaults.get("robot"),
        control=options.control or suite.defaults.get("control"),
    )
    body: Body = lookup("body", {name: (suite.body, None)}, name)(task, resolved)
    return body


def _absolute_path(value: Any) -> Any:
    """The absolute path of a file, other values unchanged: a policy keeps it and is loaded elsewhere. Raises
    ConfigError for a path that cannot be read back from a name.
    """
    if not isinstance(value, str) or not value.endswith((".yaml", ".yml")):
        return value
    path = str(Path(value).resolve())
    if "," in path:
        raise ConfigError(
            f"{path} cannot be part of an environment's name, whose options are separated by commas. Move "
            "the file to a path without commas."
        )
    return path
