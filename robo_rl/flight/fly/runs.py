"""Training of the policies of `robo-rl fly` in a run folder, and their measurement on shared starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.flight.policy import FlightPolicy
from policies.saved_files import POLICY_FILE
from robo_rl.conf.fly import FlyConfig
from robo_rl.core.seeding import derive_seed
from robo_rl.core.settings import free_keys
from robo_rl.flight.fly.learners import make_training
from robo_rl.flight.fly.recipe import resolved, total_updates
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.own_files import own_numbers, with_checksums
from robo_rl.flight.rows import FlyRow
from robo_rl.flight.seed_runs import SeedPlan, train_seeds
from robo_rl.runs.device import pick_device
from robo_rl.runs.progress import progress
from robo_rl.runs.resumable import how_to_continue
from robo_rl.runs.run_dir import RunDir
from sim.flight.flights import Flights
from sim.flight.trial import Pilot, Trial, controller_pilot, fly, policy_pilot

CONTROLLERS = ("pid", "geometric")


@dataclass(frozen=True)
class SharedStarts:
    """Starts that all pilots are measured on: same states, disturbances and sensor noise."""

    setting: FlightSetup
    episodes: int
    seed: int

    @classmethod
    def of(cls, config: FlyConfig, setting: FlightSetup) -> SharedStarts:
        return cls(setting, config.eval_episodes, derive_seed("eval", config.eval_seed))

    def fly(self, pilot: Pilot) -> Trial:
        flights = self.setting.flights(self.setting.task, self.episodes, self.seed)
        with progress(self.setting.task.max_steps, "measuring", "step") as bar:
            return fly(flights, with_progress(pilot, bar))

    def controller(self, name: str) -> Pilot:
        """Classical controller with the policy's kind of command."""
        setting = self.setting
        return controller_pilot(name, setting.craft, setting.task.dt_s, self.episodes, setting.options.level)


def fly_setup(config: FlyConfig) -> tuple[FlyConfig, FlightSetup]:
    """Settings with all defaults resolved, and their setup. Raises ConfigError as `FlightSetup.of`
    and `pick_device`.
    """
    pick_device(config.device)  # a device that is missing is reported before the run's folder is made
    config = with_checksums(config)
    setting = FlightSetup.of(config)
    return resolved(config, setting.task), setting


def start_run(config: FlyConfig) -> RunDir:
    """The run folder, new or resumed."""
    free = free_keys("fly")
    return RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite, free=free)


def train_inside(config: FlyConfig, *, resume: bool) -> None:
    """`train_run` as a part of another verb's run. resume: continue an unfinished training, and keep a
    finished one. Raises KeyboardInterrupt, with a sentence on how to continue, after Ctrl-C or SIGTERM.
    """
    run = RunDir(Path(config.out))
    if resume and (run.policy / POLICY_FILE).is_file():
        return
    try:
        train_run(replace(config, resume=resume and (run.path / "run.json").is_file()))
    except KeyboardInterrupt as stop:
        ending = how_to_continue(run)
        if run.latest() is None:
            ending = f"nothing was saved yet in {run.path}; the same command with resume=true starts it again"
        raise KeyboardInterrupt(ending) from stop


def train_run(config: FlyConfig) -> tuple[list[FlyRow], dict[str, Trial]]:
    """`train_all` in the run folder `config.out`, for other verbs and benchmarks."""
    config, setting = fly_setup(config)
    with start_run(config) as run:
        return train_all(config, setting, run)


def train_all(config: FlyConfig, setting: FlightSetup, run: RunDir) -> tuple[list[FlyRow], dict[str, Trial]]:
    """Train and measure every seed; a resumed run continues. Returns the first seed's rows and trials."""
    plan = SeedPlan(
        "fly", config.seed, config.seeds, total_updates(config), config.checkpoint_every, config.resume,
        shown=("train/cost",),
        about={
            "verb": "fly", "method": config.method.name, "task": config.task, "craft": setting.craft.name,
            "source": setting.craft.source, "settings": asdict(config), **own_numbers(config),
        },
    )  # fmt: skip
    trained = train_seeds(plan, run, partial(make_training, config, setting))
    rows: list[FlyRow] = []
    trials: dict[str, Trial] = {}
    starts = SharedStarts.of(config, setting)
    for folder, note in trained:
        policy = load_policy(folder)
        assert isinstance(policy, FlightPolicy)
        trial = starts.fly(policy_pilot(policy.columns))
        cost = {key: note[key] for key in ("train_cpu_s", "compile_cpu_s", "env_steps", "seed")}
        rows.append(FlyRow.of("policy", trial, **cost))
        if not trials:
            save_policy(run.policy, policy, note | {"measured": rows[0].held.to_json()})
            trials["policy"] = trial
    return rows, trials


def fly_controllers(starts: SharedStarts) -> dict[str, Trial]:
    """Trials of the classical controllers."""
    return {name: starts.fly(starts.controller(name)) for name in CONTROLLERS}


def with_progress(pilot: Pilot, bar: Any) -> Pilot:
    """The pilot, with one unit of the progress bar per decision."""

    def act(flights: Flights) -> Tensor:
        bar.update(1)
        return pilot(flights)

    return act
