"""`robo-rl swarm`: one policy for every drone of a swarm among obstacles; trained, measured, drawn, filmed,
bundled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.flight.swarm import SwarmPolicy
from robo_rl.apps.flight.swarm_report import finish
from robo_rl.apps.flight.swarm_setting import SwarmSetting
from robo_rl.apps.runs.progress import progress
from robo_rl.apps.runs.run_dir import RunDir
from robo_rl.apps.runs.signals import stop_between_steps
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.timing import cpu_seconds
from robo_rl.rl.differentiable.first_order import FirstOrder, FirstOrderConfig
from sim.flight.swarm.swarm import Swarm
from sim.flight.swarm.swarm_trial import SwarmPaths, SwarmTrial, measure
from sim.tasks.swarm.scenarios import SCENARIOS
from sim.tasks.swarm.world import SwarmWorld

__all__ = ["SwarmRow", "SwarmSetting", "evaluated", "main", "rows_of", "train_all"]


@dataclass(frozen=True)
class SwarmRow:
    """One row of the table: a scenario, or all of them, in one kind of world. Rates are per drone; the
    interval counts with the drones of a world standing and falling together.
    """

    drones: int
    density: float
    scenario: str
    success: SuccessRate
    hit_drone: float
    hit_cylinder: float
    left: float
    collided: float  # any of the three
    time_to_goal_s: float | None  # mean over successes
    eval_cpu_s: float
    train_cpu_s: float = 0.0
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"success": self.success.to_json()}


def main(config: SwarmConfig) -> int:
    """Train `seeds` policies, measure each on the same unseen worlds, and leave table, pictures and
    bundle.
    """
    torch.set_num_threads(1)
    setting = SwarmSetting.of(config)
    with RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite) as run:
        rows, paths = train_all(config, setting, run)
        return finish(config, setting, run, rows, paths)


def train_all(config: SwarmConfig, setting: SwarmSetting, run: RunDir) -> tuple[list[SwarmRow], SwarmPaths]:
    """Every seed one after the other; a resumed run goes on where it was. The first seed's policy is kept."""
    at = run.latest() if config.resume else None
    saved = None if at is None else load_state(at[1])
    done: list[dict[str, Any]] = [] if saved is None else list(saved["done"])
    rows: list[SwarmRow] = []
    drawn: SwarmPaths | None = None
    with (
        progress(config.updates * config.seeds, "swarm", "update", initial=at[0] if at else 0) as bar,
        run.metrics(at[0] if at else None, bar=bar) as metrics,
        stop_between_steps() as stop,
    ):
        metrics.shown = ("train/cost", "train/touching")
        for index in range(config.seeds):
            folder = run.path / f"seed{config.seed + index}"
            if index >= len(done):
                policy, note = _train(config, setting, index, done, saved, run, bar, metrics, stop)
                saved = None
                save_policy(folder, policy, note)
                done.append(note)
            policy = load_policy(folder)  # type: ignore[assignment]
            assert isinstance(policy, SwarmPolicy)
            bar.set_description("swarm, measuring")
            found, paths = measured(config, setting, policy, done[index])
            bar.set_description("swarm")
            rows += found
            if drawn is None:
                drawn = paths
                save_policy(run.policy, policy, done[index] | {"measured": found[0].success.to_json()})
    assert drawn is not None
    return rows, drawn


def _train(
    config: SwarmConfig, setting: SwarmSetting, index: int, done: list[dict[str, Any]], saved: dict[str, Any] | None,
    run: RunDir, bar: Any, metrics: Any, stop: Any,
) -> tuple[SwarmPolicy, dict[str, Any]]:  # fmt: skip
    """One policy from nothing. Ctrl-C saves what is there and says how to go on."""
    seed = config.seed + index
    torch.manual_seed(derive_seed("init", seed))
    policy = setting.policy(config)
    swarm = setting.practice(config, derive_seed("swarm", seed))
    recipe = FirstOrderConfig(**{item.name: getattr(config, item.name) for item in fields(FirstOrderConfig)})
    swarm.caution = swarm.crowding = rise(0, config)
    learner, used_s = FirstOrder(policy, swarm, recipe), 0.0
    if saved is not None:
        learner.load_state_dict(saved["learner"])
        used_s = float(saved["train_cpu_s"])
    start_s, offset = cpu_seconds(), index * config.updates

    def save() -> None:
        state = {
            "learner": learner.state_dict(),
            "done": done,
            "train_cpu_s": used_s + cpu_seconds() - start_s,
        }
        with run.new_checkpoint(offset + learner.updates, keep=1) as folder:
            save_state(folder, state)

    while not learner.done:
        swarm.caution = swarm.crowding = rise(learner.updates, config)
        logs = learner.update()
        bar.update(1)
        if learner.updates % 20 == 0 or learner.done:
            logs = logs | {
                "train/touching": swarm.touching.float().mean(),
                "train/seed": torch.tensor(float(seed)),
            }
            metrics.log(offset + learner.updates, logs)
        if learner.updates % config.checkpoint_every == 0 and not learner.done:
            save()
        if stop.asked and not learner.done:
            save()
            raise KeyboardInterrupt(
                f"saved update {learner.updates} in {run.path}; the same command with resume=true goes on"
            )
    note = {
        "verb": "swarm",
        "engine": setting.engine,
        "craft": setting.craft.name,
        "source": setting.craft.source,
        "drones": config.drones,
        "env_steps": learner.env_steps,
        "seed": seed,
        "noise": 0.0,
        "train_cpu_s": round(used_s + cpu_seconds() - start_s, 2),
        "compile_cpu_s": round(swarm.compile_s, 2),
        "commit": commit(),
        "settings": asdict(config),
    }
    return policy, note


def rise(updates: int, config: SwarmConfig) -> float:
    """The curriculum: 0 at the start, 1 from `ramp` of the training on."""
    return 1.0 if config.ramp == 0.0 else min(1.0, updates / (config.ramp * config.updates))


def measured(
    config: SwarmConfig, setting: SwarmSetting, policy: SwarmPolicy, note: dict[str, Any]
) -> tuple[list[SwarmRow], SwarmPaths]:
    """All rows of one policy, and the paths of the first world of every scenario."""
    rows: list[SwarmRow] = []
    drawn: SwarmPaths | None = None
    for world in (setting.world, *setting.others):
        start_s = cpu_seconds()
        trial, paths = evaluated(config, setting, world, policy.columns)
        drawn = drawn or paths
        rows += rows_of(world, trial, cpu_seconds() - start_s, float(note["train_cpu_s"]), int(note["seed"]))
    assert drawn is not None
    return rows, drawn


def evaluated(
    config: SwarmConfig, setting: SwarmSetting, world: SwarmWorld, columns: Any
) -> tuple[SwarmTrial, SwarmPaths]:
    """Fly unseen worlds, the same for every policy; with more drones in each, fewer of them."""

    def fresh(batch: int) -> Swarm:
        return setting.swarm(
            config, world, derive_seed("swarm eval", config.eval_seed, world.drones, batch), batch
        )

    episodes = max(1, config.episodes * config.drones // world.drones)
    return measure(fresh, columns, episodes, len(setting.scenarios))


def rows_of(
    world: SwarmWorld, trial: SwarmTrial, eval_s: float, train_s: float, seed: int
) -> Iterator[SwarmRow]:
    """All scenarios together, then each."""
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
