"""Tasks in scenes by name, suite by suite, and the options that every one of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.registry import lookup
from robo_rl.core.settings import setting
from sim.vec.options import check_reward, check_steps

if TYPE_CHECKING:  # names must be listed without a simulator
    from sim.bodies.protocol import Body, SceneTask

Tasks = dict[str, tuple[str, str | None]]
MANIPULATION: Tasks = {  # name -> (its class, called with the dials it has; None: needs no extra)
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


class Suite(NamedTuple):
    """Tasks that command the same kind of body, made by `body(task, options)`: see `sim.bodies.protocol`."""

    tasks: Tasks
    body: str
    usual: Mapping[str, str]  # what `robot` and `control` are where nothing is said of them


SUITES = {
    "arm": Suite(MANIPULATION, "sim.arms.drive:ArmBody", {"robot": "panda", "control": "cartesian"}),
    "mobile": Suite(MOBILE, "sim.mobile.body:MobileBody", {"robot": "freight", "control": "twist"}),
    "hand": Suite(IN_HAND, "sim.hands.drive:HandBody", {"robot": "hand4", "control": "joint_position"}),
}
WORDS = (
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
)  # what a name may say of any of them
DIALS = {
    "reach": ("radius_m",),
    "peg_insert": ("clearance_mm",),
    "push_t": ("coverage",),
    "unscrew": ("turns",),
    "pour": ("beads",),
    "reorient": ("goal",),
}
_UNSAID = (
    "compiled",
    "device",
    "max_episode_steps",
    "threads",
    "render_size",
    "pretty",
    "reward",
    "terminate_on_success",
)  # not part of what is learned


_TEXT, _NUMBER, _WHOLE, _FLAG = (str,), (int, float), (int,), (bool,)
_KINDS: dict[str, tuple[type, ...]] = {
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
}
_WORDS_OF = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options of an environment, as names spell them: `arm/lift:engine=pybullet,control=joint_velocity`."""

    engine: str = setting("mujoco", "what moves the bodies: mujoco, pybullet, mjwarp, isaacgym")
    robot: str | None = setting(None, "none: what is usual, for arms panda; or a YAML file of your own robot")
    control: str | None = setting(
        None, "none: what is usual, for arms cartesian; else joint_velocity or joint_position"
    )
    radius_m: float | None = setting(None, "of reach: success is within it")
    clearance_mm: float | None = setting(
        None, "of peg_insert: between the peg and the hole's wall, on either side"
    )
    goal: str | None = setting(None, "of reorient: upright (about the vertical) or any")
    coverage: float | None = setting(None, "of push_t: share of the outline to cover")
    turns: float | None = setting(None, "of unscrew: of the nut until it is free")
    beads: int | None = setting(None, "of pour: how many")
    randomise: str = setting("none", "none, a preset (mild, wide, mobile) or a YAML file")
    actuator: str = setting(
        "none", "what servos are besides: none, a preset (dc_motor, lag, geared, hobby) or a YAML file"
    )
    reward: str = setting("sparse", "sparse: 1 at success; dense: the task's shaped reward")
    terminate_on_success: bool | None = setting(
        None, "none: with sparse rewards; dense ones would pay for not succeeding"
    )
    max_episode_steps: int | None = setting(None, "none: the task's own")
    threads: int = setting(0, "of the mujoco engine; 0: one per processor")
    render_size: int = setting(240, "height and width of rendered video [px]")
    pretty: bool = setting(False, "of what `render` draws: shadows, reflections, smooth edges")
    cameras: str = setting(
        "", 'of the scene, joined by "+": "view+front"; each is an observation image.<camera>'
    )
    state: str = setting("all", 'of what the task observes; "robot": only what a robot knows of itself')
    senses: str = setting("rgb", 'of these cameras, joined by "+": "rgb+depth+points+segmentation"')
    points: int = setting(512, "of each cloud")
    image_size: int = setting(84, "of each camera, in pixels")
    compiled: bool | None = setting(None, "none: from 64 lanes on")
    device: str | None = setting(None, "of engines that can choose; none: a GPU where there is one")

    def __post_init__(self) -> None:
        for name, kinds in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                words = " or ".join(
                    _WORDS_OF[kind] for kind in kinds if kind is not int or float not in kinds
                )
                raise ConfigError(f"{name} is {value!r}; expected {words}.")
        check_reward(self.reward)
        if self.max_episode_steps is not None:
            check_steps(self.max_episode_steps)
        if not 1 <= self.points <= 65536:
            raise ConfigError(f"points is {self.points}; expected 1 to 65536.")
        if not 8 <= self.image_size <= 1024:
            raise ConfigError(f"image_size is {self.image_size}; expected 8 to 1024 pixels.")

    @property
    def ends_with_success(self) -> bool:
        return self.reward == "sparse" if self.terminate_on_success is None else self.terminate_on_success

    def words(self, suite: str) -> str:
        """What a name says beyond the task: options that differ from the usual and matter to a policy."""
        usual = {field.name: field.default for field in fields(self)} | dict(SUITES[suite].usual)
        changed = [
            f"{name}={_lasting(getattr(self, name))}"
            for name, value in usual.items()
            if name not in _UNSAID and getattr(self, name) not in (None, value)
        ]
        return f":{','.join(changed)}" if changed else ""


def suite_of(task: str) -> str:
    """The suite that a task belongs to: no two have one of the same name. Raises UnknownNameError."""
    for name, suite in SUITES.items():
        if task in suite.tasks:
            return name
    raise UnknownNameError("task", task, all_tasks())


def all_tasks() -> tuple[str, ...]:
    return tuple(task for suite in SUITES.values() for task in suite.tasks)


def make_task(name: str, options: TaskOptions) -> SceneTask:
    """Raises UnknownNameError for a task that does not exist or a dial that it does not have."""
    suite = suite_of(name)
    kind: Any = lookup("task", SUITES[suite].tasks, name)
    given = {
        dial: getattr(options, dial)
        for dials in DIALS.values()
        for dial in dials
        if getattr(options, dial) is not None
    }
    for dial in given:
        if dial not in DIALS.get(name, ()):
            has = ", ".join(other for other, dials in DIALS.items() if dial in dials)
            raise ConfigError(f"{suite}/{name} has no {dial}={given[dial]} to set; {has} has.")
    task: SceneTask = kind(**given)
    return task


def make_body(name: str, task: SceneTask, options: TaskOptions) -> Body:
    """What this task commands. Raises UnknownNameError or ConfigError for a robot that is none of its
    kind.
    """
    suite = SUITES[suite_of(name)]
    said = replace(
        options,
        robot=options.robot or suite.usual.get("robot"),
        control=options.control or suite.usual.get("control"),
    )
    body: Body = lookup("body", {name: (suite.body, None)}, name)(task, said)
    return body


def _lasting(value: Any) -> Any:
    """A file by its whole path: a policy keeps the name, and is loaded from other folders."""
    named = isinstance(value, str) and value.endswith((".yaml", ".yml"))
    return str(Path(value).resolve()) if named else value
