"""Outputs of `robo-rl swarm`: the table, results.json, a plot from above, a video and the bundle."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from policies.c.swarm import CSwarm, verify_c_swarm, write_c_swarm
from policies.checkpoint import load_policy, read_policy_json
from policies.deploy.bundle_writer import write_bundle
from policies.flight.swarm import STATE, SwarmPolicy
from robo_rl.core.errors import MissingDependencyError
from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.eval import text
from robo_rl.eval.flight.swarm_log import SwarmLog
from robo_rl.eval.flight.swarm_plots import write_swarm_plot
from robo_rl.eval.flight.swarm_video import write_swarm_video
from robo_rl.flight.craft_facts import craft_facts
from robo_rl.flight.rows import SwarmRow
from robo_rl.runs.run_dir import RunDir
from sim.tasks.swarm.scenarios import SCENARIOS
from sim.tasks.swarm.world import ABSENT_M

if TYPE_CHECKING:
    from robo_rl.conf.swarm import SwarmConfig
    from robo_rl.flight.swarm.setting import SwarmSetting
    from sim.flight.swarm.swarm_trial import SwarmPaths

FILMED = 2  # worlds in the video


def write_outputs(
    config: SwarmConfig, setting: SwarmSetting, run: RunDir, rows: list[SwarmRow], paths: SwarmPaths
) -> str:
    """Write all files of the run; returns a line with their names."""
    out = run.path
    note = read_policy_json(run.policy)["train"]
    policy = load_policy(run.policy)
    assert isinstance(policy, SwarmPolicy)
    export, c_line = _header(out / "policy.h", policy, setting, note)
    _results(out / "results.json", config, rows, float(note["compile_cpu_s"]), export)
    logs = swarm_logs(setting, paths)
    title = (
        f"{config.drones} drones, {config.density:.0%} obstacle density, {setting.craft.name}{where(config)}"
    )
    write_swarm_plot(out / "swarm.png", logs, title)
    if config.video:
        write_swarm_video(out / "swarm.mp4", logs[:FILMED])
    write_bundle(
        out / "bundle",
        policy,
        setting.spec(),
        name=f"swarm-{setting.craft.name}",
        noise="zero",
        training=note,
        measured=note["measured"] | {"env": setting.spec().name, "noise": 0.0},
        example={STATE: _example(setting)},
    )
    film = ", swarm.mp4" if config.video else ""
    return f"Pictures: {out}/swarm.png{film}; bundle: {out}/bundle; {c_line}"


def _header(
    path: Path, policy: SwarmPolicy, setting: SwarmSetting, note: dict[str, Any]
) -> tuple[CSwarm, str]:
    """Write policy.h and compare it with torch; returns its size and cost and a line on the result."""
    facts = {
        **craft_facts(setting.craft),
        "observation": setting.spec().obs[STATE].unit,
        "rate": f"{1.0 / setting.world.dt_s:g} Hz",
        "commit": str(note["commit"]),
        "what is left out": "code for the observation: the vehicle must compute it as described above",
    }
    export = write_c_swarm(path, "swarm", policy, _example(setting)[:, 0], facts)
    size = f"C: {path}, {export.macs} multiply-adds, {export.flash_bytes / 1024:.0f} KiB"
    try:
        return export, f"{size}, differs from torch by {verify_c_swarm(path, 'swarm', policy):.1g}"
    except MissingDependencyError as error:
        return export, f"{size} (not compared with torch: {error})"


def swarm_logs(setting: SwarmSetting, paths: SwarmPaths) -> list[SwarmLog]:
    """Logs of the recorded worlds for plots and videos."""

    def rows(value: torch.Tensor, world: int) -> np.ndarray:
        return value[:, :, world].permute(0, 2, 1).numpy()

    logs = []
    for i, scenario in enumerate(paths.scenario.tolist()):
        axes = paths.cylinders[:, i].T.numpy()
        logs.append(
            SwarmLog(
                SCENARIOS[scenario].replace("_", " "), paths.time_s.numpy(), rows(paths.position_m, i),
                rows(paths.quat_wxyz, i), rows(paths.goal_m, i), axes[axes[:, 0] < ABSENT_M / 2],
                paths.failed[i].numpy(), setting.world.cylinder_m, setting.world.room_m,
            )
        )  # fmt: skip
    return logs


def _example(setting: SwarmSetting) -> torch.Tensor:
    """Random observations in [-1, 1] (8, 1, obs_size), to compare the exported graph with torch."""
    rows = torch.randn(8, 1, setting.senses.obs_size, generator=torch.Generator().manual_seed(0)) * 0.5
    return rows.clamp(-1.0, 1.0)


def _results(path: Path, config: SwarmConfig, rows: list[SwarmRow], compile_s: float, export: CSwarm) -> None:
    """Write means over seeds in the kind of world of the training, and every row."""
    ours = [row for row in rows if row.scenario == "all" and row.drones == config.drones]
    ours = [row for row in ours if row.density == config.density]
    write_json(
        path,
        {
            "commit": commit(),
            "machine": machine(),
            "craft": config.craft,
            "engine": config.engine,
            "drones": config.drones,
            "density": config.density,
            "success": fmean(row.success.rate for row in ours),
            "collided": fmean(row.collided for row in ours),
            "train_cpu_s": fmean(row.train_cpu_s for row in ours),
            "compile_cpu_s": compile_s,
            "seeds": [row.seed for row in ours],
            "eval_episodes": config.eval_episodes,
            "c": export.to_json(),
            "rows": [row.to_json() for row in rows],
        },
    )


def print_table(config: SwarmConfig, rows: list[SwarmRow]) -> None:
    """Print a row per scenario, and one for all of them, per seed and kind of world."""
    worlds = f"{config.eval_episodes} unseen worlds of {config.eval_s:g} s each{where(config)}"
    title = f"{worlds}; every number is per drone"
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    table.add_column("scenario", no_wrap=True)
    for column in (
        "success",
        "k/n",
        "95 %",
        "hit drone",
        "hit cylinder",
        "left",
        "time to goal",
        "train CPU",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), style="bold" if row.scenario == "all" else None)
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)
    console.print(
        "success: within 0.5 m of the goal over the last second, without a collision. left: touched a wall, "
        "the floor or the ceiling. time to goal: mean over successes. 95 %: interval with the drones of one "
        "world as one cluster. CPU: training without compilation.",
        style="dim",
    )


def where(config: SwarmConfig) -> str:
    """Title suffix with the engine, unless it is `quad`."""
    return "" if config.engine == "quad" else ", in PyBullet"


def _cells(row: SwarmRow) -> list[Any]:
    name = row.scenario.replace("_", " ")
    if row.scenario == "all":
        name = f"{row.drones} drones, {row.density:.0%}, seed {row.seed}"
    return [
        name,
        text.percent(row.success),
        f"{row.success.k}/{row.success.n}",
        text.interval(row.success),
        f"{row.hit_drone:.1%}",
        f"{row.hit_cylinder:.1%}",
        f"{row.left:.1%}",
        "–" if row.time_to_goal_s is None else f"{row.time_to_goal_s:.1f} s",
        text.seconds(row.train_cpu_s) if row.scenario == "all" else "",
    ]
