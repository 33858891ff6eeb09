"""Manipulation tasks by name, and the options that every one of them takes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.registry import lookup
from sim.adapters.options import check_reward, check_steps

if TYPE_CHECKING:  # names must be listed without a simulator
    from sim.tasks.manipulation import ManipulationTask

MANIPULATION = {  # name -> (its class, called with the dials it has; None: needs no extra)
    "lift": ("sim.tasks.lift:LiftTask", None),
    "stack": ("sim.tasks.stack:StackTask", None),
    "drawer": ("sim.tasks.drawer:DrawerTask", None),
    "peg_insert": ("sim.tasks.peg_insert:PegInsertTask", None),
}
WORDS = (
    "engine",
    "robot",
    "control",
    "clearance_mm",
    "randomise",
    "cameras",
    "image_size",
)  # what a name may say of any of them
DIALS = {"peg_insert": ("clearance_mm",)}
_UNSAID = (
    "compiled",
    "device",
    "max_episode_steps",
    "threads",
    "render_size",
    "reward",
    "terminate_on_success",
)  # not part of what is learned


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options of a manipulation environment, as names spell them: `arm/lift:engine=pybullet,control=joint_velocity`."""

    engine: str = "mujoco"
    robot: str = "panda"
    control: str = "cartesian"
    clearance_mm: float | None = None
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
            f"{field.name}={getattr(self, field.name)}"
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
            raise UnknownNameError(f"option of arm/{name}", dial, DIALS.get(name, ()))
    task: ManipulationTask = kind(**given)
    return task
