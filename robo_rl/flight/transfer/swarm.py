"""`robo-rl transfer` for swarm policies: the same worlds in `quad` and in PyBullet."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import Tensor

from policies.checkpoint import read_policy_json
from policies.flight.swarm import SwarmPolicy
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import CheckpointError
from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.core.text.commands import command
from robo_rl.eval import text
from robo_rl.eval.flight.swarm_plots import write_swarm_plot
from robo_rl.eval.flight.swarm_video import write_swarm_video
from robo_rl.eval.stats import SuccessRate
from robo_rl.flight.swarm.report import FILMED, swarm_logs
from robo_rl.flight.swarm.runs import evaluate_worlds
from robo_rl.flight.swarm.setting import SwarmSetting
from robo_rl.runs.loaded_policy import find_policy, flight_policy, trained_settings
from robo_rl.runs.outputs import free_path
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import holder_of
from sim.engines.bullet.effects import AirEffects, borrowed
from sim.flight.swarm.swarm_trial import SwarmPaths, SwarmTrial
from sim.tasks.swarm.scenarios import SCENARIOS

HOME = "quad"
WORLDS = 100
UPDATES = 300  # of an advised training in PyBullet, a fifth of the default: an update is four times slower


@dataclass(frozen=True)
class SwarmDrop:
    """Results of all worlds, or those of one scenario, in both engines, drone by drone."""

    scenario: str
    home: SwarmTrial
    away: SwarmTrial

    @property
    def rates(self) -> tuple[SuccessRate, SuccessRate]:
        first, second = (SuccessRate.of_groups(trial.success.numpy()) for trial in (self.home, self.away))
        return first, second

    @property
    def points(self) -> float:
        """Loss of success in percentage points; positive: fewer succeeded in the other engine."""
        first, second = self.rates
        return 100.0 * (first.rate - second.rate)

    def to_json(self) -> dict[str, Any]:
        good = self.home.success, self.away.success
        collided = [round(float(trial.collided.float().mean()), 4) for trial in (self.home, self.away)]
        return {
            "scenario": self.scenario,
            "quad": self.rates[0].to_json() | {"collided": collided[0]},
            "pybullet": self.rates[1].to_json() | {"collided": collided[1]},
            "drop_points": self.points,
            "only_home": int((good[0] & ~good[1]).sum()),
            "only_away": int((good[1] & ~good[0]).sum()),
        }


def is_swarm(config: TransferConfig) -> bool:
    """True for a policy of `robo-rl swarm`."""
    given = config.run or config.bundle
    return given is not None and read_policy_json(find_policy(given))["kind"] == SwarmPolicy.kind


def main(config: TransferConfig, scene: AirEffects) -> int:
    """Fly the same worlds in both engines, print the table, and write results.json and plots into `out`."""
    folder, policy, trained = load_swarm(config)
    setting = SwarmSetting.of(trained)
    if (found := policy.obs_spec["state"].shape[0]) != setting.senses.obs_size:
        raise CheckpointError(
            f"The policy in {folder} takes {found} numbers, but its swarm gives {setting.senses.obs_size}: "
            "the settings differ from those of its training. Give the run that trained it."
        )
    drops, paths = measure(config, trained, policy, scene)
    try:
        write_files(Path(config.out), config, trained, setting, scene, folder, drops, paths)
    finally:  # also where the files cannot be written
        print_table(trained, setting, scene, drops)
    pictures = "transfer.png, transfer.mp4" if config.video else "transfer.png"
    print(f"pictures: {config.out}/{pictures}; figures: {config.out}/results.json")
    if following := next_step(config, trained, folder, drops[0]):
        print(f"Next:   {following}")
    return 0


def write_files(
    out: Path,
    config: TransferConfig,
    trained: SwarmConfig,
    setting: SwarmSetting,
    scene: AirEffects,
    policy: Path,
    drops: list[SwarmDrop],
    paths: SwarmPaths,
) -> None:
    """Write results.json and the pictures. policy: folder."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(
        out / "results.json",
        {
            "commit": commit(),
            "machine": machine(),
            "policy": str(policy),
            "task": "swarm",
            "craft": trained.craft,
            "engine": config.engine,
            "scene": asdict(scene) | {"borrowed": borrowed(setting.craft, scene)},
            "drones": trained.drones,
            "density": trained.density,
            "episodes": trained.eval_episodes,
            "seed": config.seed,
            "drop_points": drops[0].points,
            "rows": [drop.to_json() for drop in drops],
        },
    )
    logs = swarm_logs(setting, paths)
    write_swarm_plot(out / "transfer.png", logs, f"{_name(trained)}, in PyBullet")
    if config.video:
        write_swarm_video(out / "transfer.mp4", logs[:FILMED])


def next_step(config: TransferConfig, trained: SwarmConfig, policy: Path, drop: SwarmDrop) -> str:
    """Training in PyBullet after a clear loss there: the intervals do not meet. Empty without one, where the
    settings of the training are gone, and for a policy that was trained there.

    policy: folder. drop: of all worlds.
    """
    run, (home, away) = holder_of(policy), drop.rates
    file = run / "config.yaml"
    if home.wilson()[0] <= away.wilson()[1] or not file.is_file() or trained.engine == "pybullet":
        return ""
    again = command(
        "swarm",
        config=file,
        craft=config.craft,
        eval_s=config.eval_s,
        engine="pybullet",
        downwash=False if trained.downwash else None,  # PyBullet has its own
        updates=UPDATES,
        out=free_path(Path(f"{run}-again")),
    )
    return f"{again}   (it loses success in PyBullet, which is far slower in training)"


def load_swarm(config: TransferConfig) -> tuple[Path, SwarmPolicy, SwarmConfig]:
    """Policy folder, policy, and its training settings with the number of worlds to measure in.

    Raises ConfigError unless exactly one of `run` and `bundle` is given, CheckpointError for a bundle without
    its training settings.
    """
    given, folder, policy = flight_policy(config, "swarm")
    assert isinstance(policy, SwarmPolicy)
    changes: dict[str, Any] = {"eval_s": config.eval_s, "craft": config.craft}
    settings: SwarmConfig = trained_settings(given, folder, SwarmConfig, "swarm")
    trained = replace(settings, **{key: value for key, value in changes.items() if value is not None})
    worlds = WORLDS if config.episodes is None else config.episodes
    return folder, policy, replace(trained, engine=HOME, also=[], eval_episodes=worlds, eval_seed=config.seed)


def measure(
    config: TransferConfig, trained: SwarmConfig, policy: SwarmPolicy, scene: AirEffects
) -> tuple[list[SwarmDrop], SwarmPaths]:
    """Results of all scenarios together, then of each; and the paths of PyBullet's first worlds."""
    away = replace(trained, engine=config.engine, downwash=False)
    setting = SwarmSetting.of(trained)
    batches = -(-trained.eval_episodes // trained.worlds)
    found = []
    with progress(2 * batches * setting.world.steps, "transfer", "step") as bar:

        def act(obs: Tensor) -> Tensor:
            bar.update(1)
            return policy.columns(obs)

        for one in (trained, away):
            there = replace(SwarmSetting.of(one), scene=scene)
            found.append(evaluate_worlds(one, there, there.world, act))
    (home, _), (other, paths) = found
    kinds = sorted(set(home.scenario.tolist()))
    each = [SwarmDrop(SCENARIOS[i], home.of(i), other.of(i)) for i in kinds]
    return [SwarmDrop("all", home, other), *each], paths


def print_table(
    trained: SwarmConfig, setting: SwarmSetting, scene: AirEffects, drops: list[SwarmDrop]
) -> None:
    """Print a row per scenario: success in both engines, and the difference."""
    title = f"{_name(trained)}: {trained.eval_episodes} worlds, the same in both engines"
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    table.add_column("scenario", no_wrap=True)
    for column in ("quad", "95 %", "PyBullet", "95 %", "difference", "touched in quad", "in PyBullet"):
        table.add_column(column, justify="right", no_wrap=True)
    for drop in drops:
        cells = [text_ for rate in drop.rates for text_ in (f"{rate.k}/{rate.n}", text.interval(rate))]
        touched = [f"{float(trial.collided.float().mean()):.1%}" for trial in (drop.home, drop.away)]
        style = "bold" if drop.scenario == "all" else None
        table.add_row(
            drop.scenario.replace("_", " "), *cells, f"{0.0 - drop.points:+.1f} points", *touched, style=style
        )
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)
    air, lent = ", ".join(scene.effects) or "none", ", ".join(borrowed(setting.craft, scene))
    console.print(
        f"engine pybullet: {scene.substeps(setting.world.dt_s) / setting.world.dt_s:g} steps/s, effects: "
        f"{air}{f' ({lent} of {scene.donor})' if lent else ''}. A collision is a contact of hulls, "
        "propellers included, with drones, cylinders or the floor; in quad: a distance below two arm "
        "lengths. "
        "95 %: interval in per cent, with the drones of one world as one cluster.",
        style="dim",
    )


def _name(trained: SwarmConfig) -> str:
    return f"{trained.drones} drones, {trained.density:.0%} obstacle density, {trained.craft}"
