"""What `robo-rl fly` leaves behind: the table, results.json, pictures, the bundle and the C header."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from policies.bundle import write_bundle
from policies.c_export import FlightMemory, verify_c_header, write_c_header
from policies.checkpoint import load_policy, read_policy_json
from policies.flight import STATE, FlightPolicy
from robo_rl.apps.run_dir import RunDir
from robo_rl.core.errors import MissingDependencyError
from robo_rl.core.files import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.eval import text
from robo_rl.eval.flight_log import FlightLog
from robo_rl.eval.flight_plots import write_flight_plots
from robo_rl.eval.flight_video import write_flight_video

if TYPE_CHECKING:
    from robo_rl.apps.fly import FlyRow, Setting
    from robo_rl.conf.fly import FlyConfig
    from sim.engines.quad.trial import Trial

LABELS = {
    "policy": "Learned policy",
    "pid": "PID",
    "geometric": "Geometric (Lee 2010)",
    "mellinger": "Mellinger (2011)",
    "lqr": "LQR",
}
FILMED = 6  # drones in the video


def finish(config: FlyConfig, setting: Setting, run: RunDir, rows: list[FlyRow], trials: dict[str, Trial]) -> int:
    """Print the table and write everything that outlives the run."""
    out = run.path
    _results(out / "results.json", config, rows)
    logs = [flight_log(setting, name, trial) for name, trial in trials.items()]
    write_flight_plots(out / "flight.png", logs, f"{config.task}: {setting.craft.name}, {config.eval_flights} starts")
    if config.video:
        write_flight_video(out / "flight.mp4", logs[0], drones=FILMED)
    policy = load_policy(run.policy)
    assert isinstance(policy, FlightPolicy)
    note = read_policy_json(run.policy)["train"]
    write_bundle(
        out / "bundle", policy, setting.spec(), name=f"{config.task}-{setting.craft.name}", noise="zero",
        training=note, measured=note["measured"] | {"env": setting.spec().name, "noise": 0.0},
        example={STATE: torch.randn(8, 1, len(policy.scale)) * 0.1},
    )  # fmt: skip
    c_line = write_header(out / "policy.h", config.task, policy, setting, note)
    _print(config, rows)
    print(f"pictures: {out}/flight.png{', flight.mp4' if config.video else ''}; bundle: {out}/bundle; {c_line}")
    if not setting.task.moves:
        print(f"next:     robo-rl run bundle={out}/bundle")
    return 0


def write_header(path: Path, name: str, policy: FlightPolicy, setting: Setting, note: dict[str, Any]) -> str:
    """policy.h, compiled and compared with torch where a C compiler is there; says which."""
    craft, senses = setting.craft, setting.senses
    memory = FlightMemory(
        senses.history, senses.integral, senses.integral_limit, setting.task.dt_s, 2.0 * craft.hover_speed - 1.0
    )
    examples = torch.randn(4, len(policy.scale), generator=torch.Generator().manual_seed(0)) * 0.2
    facts = {
        "craft": f"{craft.name} ({craft.source})",
        "observation": setting.spec().obs[STATE].unit,
        "rate": f"{1.0 / setting.task.dt_s:g} Hz",
        "commit": str(note["commit"]),
    }
    # A reference ahead comes from the vehicle's planner: only holding a point can keep its own observation.
    own = None if setting.task.moves else memory
    write_c_header(path, name, policy.weights(), policy.scale, examples, facts, memory=own)
    try:
        difference = verify_c_header(path, name, policy.weights(), policy.scale)
    except MissingDependencyError as error:
        return f"C: {path} (not compared with torch: {error})"
    return f"C: {path}, differs from torch by {difference:.1g}"


def flight_log(setting: Setting, name: str, trial: Trial) -> FlightLog:
    """A trial as the plots and the video take it."""
    steps = len(trial.position_m)

    def rows(value: torch.Tensor) -> np.ndarray:
        return value.permute(0, 2, 1).numpy()

    return FlightLog(
        time_s=(np.arange(steps) + 1) * setting.task.dt_s,
        position_m=rows(trial.position_m),
        quat_wxyz=rows(trial.quat_wxyz),
        velocity_m_s=rows(trial.velocity_m_s),
        command=rows(trial.rotor),
        goal_m=rows(trial.goal_m) if setting.task.moves else np.zeros(3),
        label=LABELS.get(name, name),
    )


def _results(path: Path, config: FlyConfig, rows: list[FlyRow]) -> None:
    """Means over seeds at the top, every row below."""
    ours = [row for row in rows if row.name == "policy"]
    errors = [row.position_error_m for row in ours if row.position_error_m is not None]
    write_json(
        path,
        {
            "commit": commit(),
            "machine": machine(),
            "task": config.task,
            "craft": config.craft,
            "position_error_m": fmean(errors) if len(errors) == len(ours) else None,
            "terminated_fraction": fmean(row.terminated_fraction for row in ours),
            "train_cpu_s": fmean(row.train_cpu_s for row in ours),
            "compile_cpu_s": sum(row.compile_cpu_s for row in ours),
            "seeds": [row.seed for row in ours],
            "eval_flights": config.eval_flights,
            "rows": [row.to_json() for row in rows],
        },
    )


def _print(config: FlyConfig, rows: list[FlyRow]) -> None:
    title = f"{config.task}, {config.eval_flights} starts with disturbance and sensor noise"
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    table.add_column("pilot", no_wrap=True)
    for column in ("error", "left the box", "held", "95 %", "env steps", "CPU"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        label = LABELS.get(row.name, row.name) + (f", seed {row.seed}" if row.seed is not None else "")
        table.add_row(
            label,
            "–" if row.position_error_m is None else f"{row.position_error_m * 1000:.1f} mm",
            f"{row.terminated_fraction:.1%}",
            text.percent(row.held),
            text.interval(row.held),
            text.count(row.env_steps) if row.env_steps else "–",
            text.seconds(row.train_cpu_s) if row.train_cpu_s else "–",
        )
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)
    console.print(
        "error of those that stayed: mean distance over the last 2 s; for a curve, its root mean square after 2 s. "
        "left the box: beyond 0.6 m of the goal. held: stayed, error below 10 cm. CPU: training, compilation apart.",
        style="dim",
    )
