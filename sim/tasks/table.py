"""Manipulation tasks by name, and the options that every one of them takes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import lookup
from sim.adapters.options import check_reward, check_steps

if TYPE_CHECKING:  # names must be listed without a simulator
    from sim.tasks.manipulation import ManipulationTask

MANIPULATION = {  # name -> (its class, called with the dials it has; None: needs no extra)
    "lift": ("sim.tasks.lift:LiftTask", None),
    "stack": ("sim.tasks.stack:StackTask", None),
    "drawer": ("sim.tasks.drawer:DrawerTask", None),
    "peg_insert": ("sim.tasks.peg_insert:PegInsertTask", None),
    "push_t": ("sim.tasks.push_t:PushTTask", None),
    "unscrew": ("sim.tasks.unscrew:UnscrewTask", None),
    "pour": ("sim.tasks.pour:PourTask", None),
}
WORDS = (
    "engine",
    "robot",
    "control",
    "clearance_mm",
    "coverage",
    "turns",
    "beads",
    "randomise",
    "cameras",
    "image_size",
)  # what a name may say of any of them
DIALS = {"peg_insert": ("clearance_mm",), "push_t": ("coverage",), "unscrew": ("turns",), "pour": ("beads",)}
_UNSAID = (
    "compiled",
    "device",
    "max_episode_steps",
    "threads",
    "render_size",
    "reward",
    "terminate_on_success",
)  # not part of what is learned


_TEXT, _NUMBER, _WHOLE, _FLAG = (str,), (int, float), (int,), (bool,)
_KINDS: dict[str, tuple[type, ...]] = {
    "engine": _TEXT, "robot": _TEXT, "control": _TEXT, "clearance_mm": (*_NUMBER, type(None)), "randomise": _TEXT,
    "coverage": (*_NUMBER, type(None)), "turns": (*_NUMBER, type(None)),
    "beads": (*_WHOLE, type(None)),
    "reward": _TEXT, "terminate_on_success": (*_FLAG, type(None)), "max_episode_steps": (*_WHOLE, type(None)),
    "threads": _WHOLE, "render_size": _WHOLE, "cameras": _TEXT, "image_size": _WHOLE,
}  # fmt: skip
_WORDS_OF = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options of a manipulation environment, as names spell them: `arm/lift:engine=pybullet,control=joint_velocity`."""

    engine: str = "mujoco"
    robot: str = "panda"
    control: str = "cartesian"
    clearance_mm: float | None = None
    coverage: float | None = None
    turns: float | None = None
    beads: int | None = None
    randomise: str = "none"
    reward: str = "sparse"
    terminate_on_success: bool | None = None  # none: with sparse rewards; dense ones would pay for not succeeding
    max_episode_steps: int | None = None
    threads: int = 0
    render_size: int = 240
    cameras: str = ""  # of the scene, joined by "+": "view+front"; each is an observation image.<camera>
    image_size: int = 84
    compiled: bool | None = None  # none: from 64 lanes on
    device: str | None = None  # of engines that can choose; none: a GPU where there is one

    def __post_init__(self) -> None:
        for name, kinds in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                words = " or ".join(_WORDS_OF[kind] for kind in kinds if kind is not int or float not in kinds)
                raise ConfigError(f"{name} is {value!r}; expected {words}.")
        check_reward(self.reward)
        if self.max_episode_steps is not None:
            check_steps(self.max_episode_steps)
        if not 8 <= self.image_size <= 1024:
            raise ConfigError(f"image_size is {self.image_size}; expected 8 to 1024 pixels.")

    @property
    def ends_with_success(self) -> bool:
        return self.reward == "sparse" if self.terminate_on_success is None else self.terminate_on_success

    @property
    def words(self) -> str:
        """What a name says beyond the task: options that differ from the defaults and matter to a policy."""
        changed = [
            f"{field.name}={_lasting(getattr(self, field.name))}"
            for field in fields(self)
            if field.name not in _UNSAID and getattr(self, field.name) != field.default
        ]
        return f":{','.join(changed)}" if changed else ""


def make_task(name: str, options: TaskOptions) -> ManipulationTask:
    """Raises UnknownNameError for a task that does not exist or a dial that it does not have."""
    kind: Any = lookup("manipulation task", MANIPULATION, name)
    given = {
        dial: getattr(options, dial) for dials in DIALS.values() for dial in dials if getattr(options, dial) is not None
    }
    for dial in given:
        if dial not in DIALS.get(name, ()):
            has = ", ".join(other for other, dials in DIALS.items() if dial in dials)
            raise ConfigError(f"arm/{name} has no {dial}={given[dial]} to set; {has} has.")
    task: ManipulationTask = kind(**given)
    return task


def _lasting(value: Any) -> Any:
    """A file by its whole path: a policy keeps the name, and is loaded from other folders."""
    named = isinstance(value, str) and value.endswith((".yaml", ".yml"))
    return str(Path(value).resolve()) if named else value
