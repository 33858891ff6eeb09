"""Several MetaWorld tasks in one environment, told apart by pictures and an instruction.

The seed of an episode chooses its task and the wording of its instruction. Simulations of all tasks are built
when they are first needed and kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, Int
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, target_of
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from sim.adapters.metaworld import CONTROL_HZ, PACKAGE_STEPS, MetaWorldLane, MetaWorldLanes
from sim.adapters.metaworld_expert import MetaWorldExpert
from sim.adapters.metaworld_instructions import WITH_MARK, task_number, tasks_of, wording
from sim.render.projection import in_camera
from sim.render.renderer import MujocoRenderer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_flag, check_pixels, check_reward, check_steps

CAMERAS = {"image.top": "topview", "image.corner": "corner"}
EXPERT_STATE = "privileged.state"  # what the scripts read; policies of a robot do not
WHICH_TASK = "privileged.which_task"
OBJECT = slice(4, 7)  # in it, the place of the task's object [m]
WORDS = ("training", "new")


@dataclass(frozen=True, slots=True)
class WordsLanes:
    """Builder of lanes of several tasks: "mt6", "mt10", tasks joined by "+", or one task with "+" at its end.

    Observation: `state` (4,), hand xyz [m] and gripper opening [0, 1]; two pictures; `instruction`;
    `target.top` and `target.corner` (2,), place of the task's object in the pictures, for training. Only the
    simulator knows `privileged.state` (39,), the state of `MetaWorldLanes`, and `privileged.which_task` (n,),
    1 for the episode's task and 0 for the others. Actions, rewards and endings are those of `MetaWorldLanes`.
    wordings: "training", or "new" for instructions that are in no demonstration.
    """

    preload: ClassVar[tuple[str, ...]] = ("metaworld.env_dict",)

    task: str
    reward: str = "sparse"
    max_episode_steps: int = 200
    terminate_on_success: bool = True
    render_size: int = 240
    picture_px: int = 64
    wordings: str = "training"

    def __post_init__(self) -> None:
        tasks_of(self.task)
        check_reward(self.reward)
        check_steps(self.max_episode_steps, PACKAGE_STEPS)
        check_flag("terminate_on_success", self.terminate_on_success)
        check_pixels("picture_px", self.picture_px)
        if self.wordings not in WORDS:
            raise UnknownNameError("set of wordings", self.wordings, WORDS)

    @property
    def name(self) -> str:
        """Name of the environment with the options that matter to a policy, where they differ from the
        defaults.
        """
        usual = {field.name: field.default for field in fields(self)}
        given = {key: getattr(self, key) for key in ("picture_px", "wordings")}
        words = [f"{key}={value}" for key, value in given.items() if value != usual[key]]
        return f"metaworld/{self.task}" + (f":{','.join(words)}" if words else "")

    @property
    def spec(self) -> EnvSpec:
        picture = ArraySpec((self.picture_px, self.picture_px, 3), "uint8")
        return EnvSpec(
            name=self.name,
            obs={
                "state": ArraySpec((4,), "float32", "m: hand x, y, z, gripper opening"),
                **dict.fromkeys(CAMERAS, picture),
                INSTRUCTION: INSTRUCTION_SPEC,
                EXPERT_STATE: ArraySpec((39,), "float32", "m"),
                WHICH_TASK: ArraySpec((len(tasks_of(self.task)),), "float32", "1: this task"),
                **{
                    target_of(key): ArraySpec((2,), "float32", "x right, y down, edges at 1")
                    for key in CAMERAS
                },
            },
            action=ActionSpec((-1.0,) * 4, (1.0,) * 4, "cm per step, gripper effort"),
            max_episode_steps=self.max_episode_steps,
            control_hz=CONTROL_HZ,
        )

    def __call__(self) -> WordsLane:
        return WordsLane(self)


class WordsLane:
    """One lane whose task depends on the episode's seed; see `sim.vec.lane.Lane`."""

    info_keys: tuple[str, ...] = ("task",)  # index in `tasks_of`

    def __init__(self, options: WordsLanes) -> None:
        self._options, self.spec = options, options.spec
        self._tasks = tasks_of(options.task)
        self._simulations: dict[int, MetaWorldLane] = {}
        self._pictures: dict[int, SharedRenderer] = {}
        self.unread = False  # see `sim.vec.lane.PictureLane`
        self._number = 0
        self._instruction = np.zeros(INSTRUCTION_SPEC.shape, np.uint8)

    def reset(self, seed: int) -> LaneObs:
        self._number = task_number(self._tasks, seed)
        task = self._tasks[self._number]
        self._instruction = to_bytes(wording(task, seed, self._options.wordings == "new"))
        return self._observed(self._simulation().reset(seed))

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        obs, reward, terminated, truncated, success = self._simulation().step(action)
        draw = not self.unread or terminated or truncated
        return self._observed(obs, draw), reward, terminated, truncated, success

    def info(self) -> Sequence[float]:
        return (float(self._number),)

    def render(self) -> NDArray[np.uint8]:
        return self._simulation().render()

    def close(self) -> None:
        for simulation in self._simulations.values():
            simulation.close()
        self._simulations, self._pictures = {}, {}

    def _simulation(self) -> MetaWorldLane:
        if self._number not in self._simulations:
            o = self._options
            lanes = MetaWorldLanes(
                self._tasks[self._number],
                o.reward,
                o.max_episode_steps,
                o.terminate_on_success,
                o.render_size,
            )
            self._simulations[self._number] = lanes()
        return self._simulations[self._number]

    def _observed(self, obs: LaneObs, draw: bool = True) -> LaneObs:
        """Observation of the suite from that of the simulation; draw: with pictures."""
        state = obs["state"]
        which = np.zeros(len(self._tasks), np.float32)
        which[self._number] = 1.0
        numbers = {
            "state": state[:4], INSTRUCTION: self._instruction, EXPERT_STATE: state, WHICH_TASK: which,
        }  # fmt: skip
        model, data = self._simulation().model_and_data
        targets = {
            target_of(key): in_camera(model, data, camera, state[OBJECT]) for key, camera in CAMERAS.items()
        }
        return {**numbers, **targets, **(self._shots() if draw else {})}

    def _shots(self) -> LaneObs:
        simulation = self._simulation()
        if self._number not in self._pictures:
            self._pictures[self._number] = shared_renderer(
                self._tasks[self._number], self._options.picture_px, simulation
            )
        return self._pictures[self._number].shots(simulation)


class SharedRenderer:
    """Pictures of one task through all cameras, for all lanes of this process.

    Shapes and textures of a task are loaded once; to load them takes as long as 50 pictures.
    """

    def __init__(self, task: str, size_px: int, simulation: MetaWorldLane) -> None:
        model, data = simulation.model_and_data
        renderer = MujocoRenderer(
            model, data, size_px, size_px, next(iter(CAMERAS.values())), sites=task in WITH_MARK
        )
        self._renderer = renderer
        weakref.finalize(self, renderer.close)

    def shots(self, simulation: MetaWorldLane) -> dict[str, NDArray[np.uint8]]:
        """Key -> picture (s, s, 3)."""
        model, data = simulation.model_and_data
        return {key: self._renderer.render_of(model, data, camera) for key, camera in CAMERAS.items()}


_RENDERERS: weakref.WeakValueDictionary[tuple[str, int], SharedRenderer] = weakref.WeakValueDictionary()


def shared_renderer(task: str, size_px: int, simulation: MetaWorldLane) -> SharedRenderer:
    """Renderer of this task in this process, which lives as long as a lane holds it."""
    renderer = _RENDERERS.get((task, size_px))
    if renderer is None:
        renderer = _RENDERERS[task, size_px] = SharedRenderer(task, size_px, simulation)
    return renderer


class WordsExpert:
    """The script of each lane's task, with noise as in `MetaWorldExpert`."""

    def __init__(self, task: str, noise: float = 0.0, seed: int = 0) -> None:
        self._tasks = tasks_of(task)
        self._experts = [MetaWorldExpert(name, noise, seed) for name in self._tasks]

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n 4"]:
        rows: list[Any] = []
        for lane, seed in enumerate(episode_seed.tolist()):
            expert, row = self._experts[task_number(self._tasks, seed)], slice(lane, lane + 1)
            rows.append(expert.act({"state": obs[EXPERT_STATE][row]}, episode_seed[row], step[row]))
        return torch.cat(rows)
