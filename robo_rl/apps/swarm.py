"""`robo-rl swarm`: one policy for every drone of a swarm among obstacles; trained, measured, drawn, filmed, bundled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.swarm import SwarmPolicy
from robo_rl.apps.progress import progress
from robo_rl.apps.run_dir import RunDir
from robo_rl.apps.stop import stop_between_steps
from robo_rl.apps.swarm_report import finish
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.state_io import load_state, save_state
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.timing import cpu_seconds
from robo_rl.rl.first_order import FirstOrder, FirstOrderConfig
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.downwash import check_downwash
from sim.engines.quad.swarm import Practice, Swarm
from sim.engines.quad.swarm_trial import SwarmPaths, SwarmTrial, measure
from sim.tasks.swarm.scenarios import SCENARIOS, check_room, check_scenarios
from sim.tasks.swarm.terms import CYLINDER_ROWS, GOAL_M, NEIGHBOUR_ROWS, SwarmSenses
from sim.tasks.swarm.world import SwarmWorld, arm_m, check_world


@dataclass(frozen=True)
class SwarmRow:
    """One row of the table: a scenario, or all of them, in one kind of world. Rates are per drone; the interval counts
    with the drones of a world standing and falling together.
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


@dataclass(frozen=True)
class SwarmSetting:
    """What is flown: the craft, the worlds that are measured, and what a drone sees."""

    craft: Craft
    world: SwarmWorld
    others: tuple[SwarmWorld, ...]  # the same policy is measured in these too
    senses: SwarmSenses
    scenarios: tuple[str, ...]

    @classmethod
    def of(cls, config: SwarmConfig) -> SwarmSetting:
        """What the settings ask for. Raises ConfigError for worlds that cannot be, with the bound."""
        craft = load_craft(config.craft)
        for name in ("ramp", "replay", "train_density"):
            if not 0.0 <= getattr(config, name) <= 1.0:
                raise ConfigError(f"{name}={getattr(config, name):g} cannot be used: it is a share, 0 ... 1.")
        world = SwarmWorld(
            drones=config.drones, density=config.density, arm_m=arm_m(craft), low_m=config.low_m,
            high_m=config.high_m, seconds=config.eval_s,
        )  # fmt: skip
        others = tuple(replace(world, drones=num, density=share) for num, share in map(_size, config.also))
        for item in (world, *others, replace(world, density=max(config.density, config.train_density))):
            check_world(item)
        scenarios = check_scenarios(config.scenarios)
        for item in (world, *others):
            check_room(item, scenarios)
        if config.downwash:
            check_downwash(craft)
        senses = SwarmSenses(config.neighbours, config.cylinders, config.history)
        return cls(craft, world, others, senses, scenarios)

    def practice(self, config: SwarmConfig, seed: int) -> Swarm:
        """Worlds to train in: of all densities, shorter, some of them begun before a collision."""
        world = replace(self.world, density=max(config.density, config.train_density))
        return Swarm(
            self.craft, world, self.senses, config.worlds, seed, scenarios=self.scenarios,
            practice=Practice(0.0, config.train_s, config.replay), with_downwash=config.downwash, eager=config.eager,
        )  # fmt: skip

    def swarm(self, config: SwarmConfig, world: SwarmWorld, seed: int, batch: int = 0) -> Swarm:
        """As many drones in all as in training, so that the same compiled kernels serve."""
        worlds = max(1, config.worlds * config.drones // world.drones)
        return Swarm(
            self.craft, world, self.senses, worlds, seed, scenarios=self.scenarios, with_downwash=config.downwash,
            gradient=False, eager=config.eager, first_scenario=batch * worlds,
        )  # fmt: skip

    def spec(self) -> EnvSpec:
        """The contract of the policy."""
        senses = self.senses
        unit = (
            f"to goal m (bent towards {GOAL_M:g} m), rotation 1, velocity m/s, rates rad/s, goal velocity m/s, "
            f"last {senses.history} actions 1, {senses.neighbours} drones (bearing 1, relative velocity m/s, nearness "
            f"1), {senses.cylinders} cylinders (bearing 1, nearness 1); of drones and of cylinders row after row of all"
        )
        action = ActionSpec((-1.0,) * 4, (1.0,) * 4, "motor command: -1 stopped, 1 full speed")
        state = ArraySpec((senses.obs_rows,), unit=unit)
        return EnvSpec("quad/swarm", {"state": state}, action, self.world.steps, 1.0 / self.world.dt_s)

    def policy(self, config: SwarmConfig) -> SwarmPolicy:
        senses = self.senses
        kinds = ((senses.neighbours, NEIGHBOUR_ROWS), (senses.cylinders, CYLINDER_ROWS))
        scale = torch.tensor([1.0] * 15 + [0.5] * 3 + [1.0] * (3 + 4 * senses.history))
        hover = 2.0 * self.craft.hover_speed - 1.0
        return SwarmPolicy(self.spec(), kinds, config.width, config.token, config.heads, scale, hover)


def _size(text: str) -> tuple[int, float]:
    """From "32x80": 32 drones at density 0.8."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise ConfigError(f"also='{text}' is not a swarm: write drones x per cent, for example 32x80.")
    return int(match[1]), int(match[2]) / 100.0


def main(config: SwarmConfig) -> int:
    """Train `seeds` policies, measure each on the same unseen worlds, and leave table, pictures and bundle."""
    torch.set_num_threads(1)
    setting = SwarmSetting.of(config)
    run = RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite)
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
        state = {"learner": learner.state_dict(), "done": done, "train_cpu_s": used_s + cpu_seconds() - start_s}
        with run.new_checkpoint(offset + learner.updates, keep=1) as folder:
            save_state(folder, state)

    while not learner.done:
        swarm.caution = swarm.crowding = rise(learner.updates, config)
        logs = learner.update()
        bar.update(1)
        if learner.updates % 20 == 0 or learner.done:
            logs = logs | {"train/touching": swarm.touching.float().mean(), "train/seed": torch.tensor(float(seed))}
            metrics.log(offset + learner.updates, logs)
        if learner.updates % config.checkpoint_every == 0 and not learner.done:
            save()
        if stop.asked and not learner.done:
            save()
            raise KeyboardInterrupt(
                f"saved update {learner.updates} in {run.path}; the same command with resume=true goes on"
            )
    note = {
        "verb": "swarm", "craft": setting.craft.name, "source": setting.craft.source, "drones": config.drones,
        "env_steps": learner.env_steps, "seed": seed, "noise": 0.0,
        "train_cpu_s": round(used_s + cpu_seconds() - start_s, 2), "compile_cpu_s": round(swarm.compile_s, 2),
        "commit": commit(),
    }  # fmt: skip
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
        return setting.swarm(config, world, derive_seed("swarm eval", config.eval_seed, world.drones, batch), batch)

    episodes = max(1, config.episodes * config.drones // world.drones)
    return measure(fresh, columns, episodes, len(setting.scenarios))


def rows_of(world: SwarmWorld, trial: SwarmTrial, eval_s: float, train_s: float, seed: int) -> Iterator[SwarmRow]:
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
