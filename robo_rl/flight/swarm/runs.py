"""Training of the policies of `robo-rl swarm` in a run folder, and their measurement in unseen worlds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.flight.swarm import SwarmPolicy
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.core.seeding import derive_seed
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.timing import cpu_seconds
from robo_rl.flight.own_files import own_numbers
from robo_rl.flight.rows import SwarmRow
from robo_rl.flight.seed_runs import SeedPlan, train_seeds
from robo_rl.flight.swarm.setting import SwarmSetting
from robo_rl.flight.swarm.training import make_training
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import RunDir
from sim.flight.swarm.swarm import Swarm
from sim.flight.swarm.swarm_trial import SwarmPaths, SwarmTrial, measure
from sim.tasks.swarm.scenarios import SCENARIOS
from sim.tasks.swarm.world import SwarmWorld


def start_run(config: SwarmConfig) -> RunDir:
    """The run folder, new or resumed."""
    return RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite)


def train_all(config: SwarmConfig, setting: SwarmSetting, run: RunDir) -> tuple[list[SwarmRow], SwarmPaths]:
    """Train and measure every seed; a resumed run continues. Returns rows and the first seed's paths."""
    plan = SeedPlan(
        "swarm", config.seed, config.seeds, config.updates, config.checkpoint_every, config.resume,
        shown=("train/cost", "train/touching"),
        about={
            "verb": "swarm", "engine": setting.engine, "craft": setting.craft.name,
            "source": setting.craft.source, "drones": config.drones, "settings": asdict(config),
            **own_numbers(config),
        },
    )  # fmt: skip
    trained = train_seeds(plan, run, partial(make_training, config, setting))
    rows: list[SwarmRow] = []
    drawn: SwarmPaths | None = None
    with progress(len(trained), "swarm, measuring", "policy") as bar:
        for folder, note in trained:
            policy = load_policy(folder)
            assert isinstance(policy, SwarmPolicy)
            found, paths = measure_policy(config, setting, policy, note)
            rows += found
            bar.update(1)
            if drawn is None:
                drawn = paths
                save_policy(run.policy, policy, note | {"measured": found[0].success.to_json()})
    assert drawn is not None
    return rows, drawn


def measure_policy(
    config: SwarmConfig, setting: SwarmSetting, policy: SwarmPolicy, note: dict[str, Any]
) -> tuple[list[SwarmRow], SwarmPaths]:
    """All rows of one policy, and the paths of the first world of every scenario."""
    rows: list[SwarmRow] = []
    drawn: SwarmPaths | None = None
    for world in (setting.world, *setting.others):
        start_s = cpu_seconds()
        trial, paths = evaluate_worlds(config, setting, world, policy.columns)
        drawn = drawn or paths
        rows += rows_of(world, trial, cpu_seconds() - start_s, float(note["train_cpu_s"]), int(note["seed"]))
    assert drawn is not None
    return rows, drawn


def evaluate_worlds(
    config: SwarmConfig, setting: SwarmSetting, world: SwarmWorld, columns: Any
) -> tuple[SwarmTrial, SwarmPaths]:
    """Fly unseen worlds, the same for every policy; the total number of drones is about that of training."""

    def fresh(batch: int) -> Swarm:
        return setting.swarm(
            config, world, derive_seed("swarm eval", config.eval_seed, world.drones, batch), batch
        )

    episodes = max(1, config.eval_episodes * config.drones // world.drones)
    return measure(fresh, columns, episodes, len(setting.scenarios))


def rows_of(
    world: SwarmWorld, trial: SwarmTrial, eval_s: float, train_s: float, seed: int
) -> Iterator[SwarmRow]:
    """Row of all scenarios together, then one row of each."""
    kinds = [("all", trial)] + [(SCENARIOS[i], trial.of(i)) for i in sorted(set(trial.scenario.tolist()))]
    for name, part in kinds:
        good = part.success

        def share(value: Tensor) -> float:
            return round(float(value.float().mean()), 4)

        yield SwarmRow(
            world.drones, world.density, name, SuccessRate.of_groups(good.numpy()), share(part.hit_drone),
            share(part.hit_cylinder), share(part.left), share(part.collided),
            float(part.time_to_goal_s[good].mean()) if good.any() else None, round(eval_s, 2), train_s, seed,
        )  # fmt: skip
