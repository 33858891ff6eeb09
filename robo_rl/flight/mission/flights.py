"""Missions in random scenes: planned paths, flights, and their evaluation by the mission's formula."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from policies.checkpoint import load_policy
from policies.flight.policy import FlightPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.mission import MissionConfig
from robo_rl.core.errors import CheckpointError
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float
from robo_rl.eval.stats import SuccessRate
from robo_rl.flight.fly.runs import train_inside, with_progress
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.runs.loaded_policy import find_policy, trained_settings
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import RunDir
from sim.engines.quad.layout import POS
from sim.flight.flights import Flights
from sim.flight.path_following import following
from sim.flight.trial import Pilot, controller_pilot, fly, policy_pilot
from sim.tasks.flight.follow import FollowTask, path_values
from sim.tasks.stl.formula import Grid
from sim.tasks.stl.plan import Plans, plan
from sim.tasks.stl.scene import Mission, Scenes, draw_scenes

POLICY = "policy"
TRACKER_UPDATES = 600  # 20 CPU-seconds: enough to follow paths at 1.5 m/s to a few centimetres


@dataclass(frozen=True)
class MissionFlight:
    """One mission flown by one pilot in all scenes. Margins in metres; NaN if the flight ended early."""

    mission: Mission
    pilot: str
    planned_m: Float[Tensor, " n"]
    margin_m: Float[Tensor, " n"]
    position_m: Float[Tensor, "t 3 n"]

    @property
    def satisfied(self) -> SuccessRate:
        return SuccessRate(int((self.margin_m > 0.0).sum()), len(self.margin_m))

    def to_json(self) -> dict[str, Any]:
        margin = [None if math.isnan(value) else round(value, 4) for value in self.margin_m.tolist()]
        return {
            "mission": self.mission.name,
            "formula": str(self.mission.formula),
            "pilot": self.pilot,
            "satisfied": self.satisfied.to_json(),
            "planned": SuccessRate(int((self.planned_m > 0.0).sum()), len(self.planned_m)).to_json(),
            "margin_m": margin,
        }


@dataclass(frozen=True)
class Planned:
    """Scenes of a mission and the planned path of each."""

    scenes: Scenes
    plans: Plans


@dataclass(frozen=True)
class Tracker:
    """A path-following policy with the aircraft, senses, command level and realism of its training."""

    setting: FlightSetup
    policy: FlightPolicy


def load_tracker(
    config: MissionConfig, out: Path, updates: int = TRACKER_UPDATES, eager: bool = False
) -> Tracker:
    """Policy of `run`, or a newly trained one. Raises CheckpointError unless its task is figure8.

    eager: do not compile the simulator; for few updates compilation takes longer than it saves.
    """
    folder = Path(config.run) if config.run is not None else out / "tracker"
    if config.run is None:
        given = FlyConfig(task="figure8", updates=updates, out=str(folder), seed=config.seed, eager=eager)
        train_inside(given, resume=config.resume)
    settings = RunDir.open(folder).config()
    found = find_policy(folder)
    policy = load_policy(found)
    if settings.get("task") != "figure8" or not isinstance(policy, FlightPolicy):
        raise CheckpointError(
            f"{folder} holds {_task_words(settings.get('task'))}, expected one of robo-rl fly task=figure8. "
            "Train one: robo-rl fly task=figure8 out=runs/eight, then robo-rl mission run=runs/eight."
        )
    return Tracker(FlightSetup.of(trained_settings(folder, found, FlyConfig, "fly")), policy)


def plan_mission(config: MissionConfig, mission: Mission) -> Planned:
    """Scenes of a mission and their plans, which depend on the seed and the mission's name only."""
    generator = torch.Generator().manual_seed(derive_seed(f"mission/{mission.name}", config.seed))
    scenes = draw_scenes(mission, config.episodes, generator)
    with progress(config.iterations, f"plan {mission.name}", "iteration") as bar:
        return Planned(scenes, plan(scenes, config, generator, lambda: bar.update(1)))


def fly_missions(config: MissionConfig, planned: list[Planned], tracker: Tracker) -> list[MissionFlight]:
    """Fly every mission by the policy and by each controller."""
    pilots = (POLICY, *config.controllers)
    steps = len(pilots) * sum(task_of(one.scenes.mission).max_steps for one in planned)
    with progress(steps, "fly", "step") as bar:
        return [fly_mission(config, one, pilot, tracker, bar) for one in planned for pilot in pilots]


def task_of(mission: Mission) -> FollowTask:
    """Path-following task that lasts as long as the mission's formula looks ahead."""
    task = FollowTask()
    return replace(task, max_steps=mission.formula.horizon_steps(Grid(task.dt_s)))


def fly_mission(
    config: MissionConfig, planned: Planned, pilot: str, tracker: Tracker, bar: Any = None
) -> MissionFlight:
    """Fly every path with disturbance, sensor noise and the realism of the training, and evaluate the flights
    at 100 Hz. bar: progress bar that gets a unit per step.
    """
    setting, mission = tracker.setting, planned.scenes.mission
    task = task_of(mission)
    # Eager: with so few drones and steps, compilation would take longer than the flights.
    flights = Flights(
        setting.craft, task, setting.senses, config.episodes, derive_seed("flights", config.seed),
        realism=setting.realism, gradient=False, eager=True, level=setting.options.commanded,
    )  # fmt: skip
    inner: Pilot = (
        policy_pilot(tracker.policy.columns)
        if pilot == POLICY
        else controller_pilot(pilot, setting.craft, task.dt_s, config.episodes, setting.options.level)
    )
    if bar is not None:
        inner = with_progress(inner, bar)
    first = flights.state[POS].clone()
    trial = fly(flights, following(inner, path_values(planned.plans, task.max_steps, task.dt_s)))
    position = torch.cat([first.unsqueeze(0), trial.position_m])
    margin = mission.formula.margin(planned.scenes.margins(position.nan_to_num()), Grid(task.dt_s))[0]
    return MissionFlight(
        mission, pilot, planned.plans.margin_m, margin.masked_fill(trial.left, math.nan), position
    )


def _task_words(task: object) -> str:
    return "a policy that is no flight" if task is None else f"a policy of task={task}"
