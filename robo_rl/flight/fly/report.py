"""Files that `robo-rl fly` writes: results.json, pictures, the bundle and the C header."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from policies.c.export import FlightMemory, verify_c_header, write_c_header
from policies.checkpoint import load_policy, read_policy_json
from policies.deploy.bundle_writer import write_bundle
from policies.flight.policy import STATE, FlightPolicy
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.errors import MissingDependencyError
from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.core.text.commands import command
from robo_rl.eval.flight.flight_log import FlightLog
from robo_rl.eval.flight.flight_plots import write_flight_plots
from robo_rl.eval.flight.flight_video import write_flight_video
from robo_rl.eval.flight.gates import GateFrame
from robo_rl.eval.flight.race_plots import write_race_plots
from robo_rl.flight.craft_facts import craft_facts
from robo_rl.flight.fly.field import write_field_pictures
from robo_rl.flight.fly.table import LABELS
from robo_rl.flight.rows import FlyRow
from robo_rl.runs.progress import progress_callback
from robo_rl.runs.run_dir import RunDir
from sim.flight.envelope import envelope_of
from sim.tasks.flight.obstacles import ObstacleTask
from sim.tasks.flight.protocol import FlightTask
from sim.tasks.flight.race import RaceTask
from sim.tasks.flight.waypoints import WaypointTask

if TYPE_CHECKING:
    from robo_rl.conf.fly import FlyConfig
    from robo_rl.flight.fly.setup import FlightSetup
    from sim.flight.trial import Trial

FILMED = 6  # drones in the video
FILMED_S = 12.0
USABLE = 0.5  # success below which a longer training is advised instead of the use of the bundle
_OF_TASK = {
    "race": ("track",),
    "obstacles": ("density",),
    "vision_hover": ("px", "camera_hz"),
}  # settings that are copied into results.json


def halved(home: float, away: float) -> bool:
    """True for a loss of more than half of a success that was usable. Both are rates in [0, 1]."""
    return home >= USABLE and away < 0.5 * home


def write_outputs(
    config: FlyConfig, setting: FlightSetup, run: RunDir, rows: list[FlyRow], trials: dict[str, Trial]
) -> str:
    """Write all files of the run; returns a line with their names."""
    out = run.path
    write_results(out / "results.json", config, rows)
    _pictures(config, setting, out, trials)
    policy = load_policy(run.policy)
    assert isinstance(policy, FlightPolicy)
    note = read_policy_json(run.policy)["train"]
    write_bundle(
        out / "bundle", policy, setting.spec(), name=_name(config, setting), noise="zero",
        training=note, measured=note["measured"] | {"env": setting.spec().name, "noise": 0.0},
        envelope=envelope_of(trials["policy"]), example={STATE: torch.randn(8, 1, len(policy.scale)) * 0.1},
    )  # fmt: skip
    c_line = write_header(out / "policy.h", config.task, policy, setting, note)
    film = ", flight.mp4" if config.video else ""
    return f"Pictures: {out}/flight.png{film}; bundle: {out}/bundle; {c_line}"


def next_steps(config: FlyConfig, *, success: float) -> str:
    """Commands for the next steps. success: share of the measured flights that succeeded; without one, the
    bundle has no flight envelope.
    """
    if success >= USABLE:
        return f"Next:   {use_of_bundle(config, f'{config.out}/bundle')}"
    again = {"out": config.out, "overwrite": True}
    longer = command("fly", task=config.task, updates=2 * config.updates, **again)
    why = (
        f"Only {success:.0%} of the measured flights succeeded."
        if success
        else "No measured flight succeeded, so the bundle has no flight envelope, and no robot or simulated "
        "robot will fly it."
    )
    return f"{why}\nNext:   {longer}   (your other settings with it: train for longer)"


def use_of_bundle(config: FlyConfig, bundle: str) -> str:
    """Commands that fly the bundle of a training with these settings."""
    lines = [command("run", bundle=bundle)]
    if config.level == "rates" and config.task == "hover":
        lines.append(f"{command('contract', bundle=bundle, robot='crazyflie')}   (or px4)")
    return "\n        ".join(lines)


def _name(config: FlyConfig, setting: FlightSetup) -> str:
    """Name of the bundle: task, craft and, unless it is motors, the command level."""
    return f"{config.task}-{setting.craft.name}" + ("" if config.level == "motors" else f"-{config.level}")


def _pictures(config: FlyConfig, setting: FlightSetup, out: Path, trials: dict[str, Trial]) -> None:
    """Write flight.png and flight.mp4, with the gates of a race or the cylinders of a field."""
    title = f"{setting.craft.name}, {config.eval_episodes} starts"
    if isinstance(setting.task, ObstacleTask):
        write_field_pictures(
            out, setting.task, trials, f"obstacles, density {config.density:.0%}: {title}", config.video
        )
        return
    logs = [flight_log(setting.task, name, trial) for name, trial in trials.items()]
    if isinstance(setting.task, RaceTask):
        track = setting.task.track
        gates = [
            GateFrame(gate.position_m, gate.heading_deg, track.opening_m, track.outer_m)
            for gate in track.gates
        ]
        write_race_plots(out / "flight.png", logs, gates, f"race, track {track.name}: {title}")
    else:
        gates = []
        write_flight_plots(out / "flight.png", logs, f"{config.task}: {title}")
    if config.video:
        # Drones on one course would hide each other; drones that hold a point are drawn side by side.
        drones = 1 if isinstance(setting.task, RaceTask | WaypointTask) else FILMED
        with progress_callback("film", "frame") as advance:
            write_flight_video(
                out / "flight.mp4", logs[0], drones=drones, gates=gates, most_s=FILMED_S, moved=advance
            )


def write_header(
    path: Path, name: str, policy: FlightPolicy, setting: FlightSetup, note: dict[str, Any]
) -> str:
    """Write policy.h, compile it and compare it with torch; returns a line on the result."""
    if policy.law is not None:
        return "C: not written: policies with a linear part (start=lqr) have no C export yet; use the bundle"
    if setting.options.level != "motors":
        return "C: not written: a policy of thrust and body rates runs beside the autopilot; use the bundle"
    craft, senses = setting.craft, setting.senses
    memory = FlightMemory(
        senses.history,
        senses.integral,
        senses.integral_limit,
        setting.task.dt_s,
        2.0 * craft.hover_speed - 1.0,
    )
    examples = torch.randn(4, len(policy.scale), generator=torch.Generator().manual_seed(0)) * 0.2
    facts = {
        **craft_facts(craft),
        "observation": setting.spec().obs[STATE].unit,
        "rate": f"{1.0 / setting.task.dt_s:g} Hz",
        "commit": str(note["commit"]),
    }
    # The vehicle's planner provides the reference, so only point-holding tasks build the observation in C.
    own = None if setting.task.moves else memory
    if own is None:
        facts["what is left out"] = "code for the observation: the vehicle must compute it as described above"
    write_c_header(path, name, policy.weights(), policy.scale, examples, facts, memory=own)
    try:
        difference = verify_c_header(path, name, policy.weights(), policy.scale)
    except MissingDependencyError as error:
        return f"C: {path} (not compared with torch: {error})"
    return f"C: {path}, differs from torch by {difference:.1g}"


def flight_log(task: FlightTask, name: str, trial: Trial) -> FlightLog:
    """A trial in the form of plots and video."""
    steps = len(trial.position_m)

    def rows(value: torch.Tensor) -> np.ndarray:
        return value.permute(0, 2, 1).numpy()

    return FlightLog(
        time_s=(np.arange(steps) + 1) * task.dt_s,
        position_m=rows(trial.position_m),
        quat_wxyz=rows(trial.quat_wxyz),
        velocity_m_s=rows(trial.velocity_m_s),
        command=rows(trial.rotor),
        goal_m=rows(trial.goal_m) if task.moves else np.zeros(3),
        label=LABELS.get(name, name),
    )


def write_results(path: Path, config: FlyConfig | VisionConfig, rows: list[FlyRow]) -> None:
    """Write means over seeds and every row."""
    ours = [row for row in rows if row.name == "policy"]
    errors = [row.position_error_m for row in ours if row.position_error_m is not None]
    write_json(
        path,
        {
            "commit": commit(),
            "machine": machine(),
            "task": config.task,
            "craft": config.craft,
            **(
                {}
                if isinstance(config, VisionConfig)
                else {"engine": config.engine, "level": config.level, "method": config.method.name}
            ),
            **{name: getattr(config, name) for name in _OF_TASK.get(config.task, ())},
            "position_error_m": fmean(errors) if len(errors) == len(ours) else None,
            "terminated_fraction": fmean(row.terminated_fraction for row in ours),
            **{name: _mean([row.facts[name] for row in ours]) for name in ours[0].facts},
            "success": fmean(row.held.rate for row in ours),
            "train_cpu_s": fmean(row.train_cpu_s for row in ours),
            "compile_cpu_s": sum(row.compile_cpu_s for row in ours),
            "seeds": [row.seed for row in ours],
            "eval_episodes": config.eval_episodes,
            "rows": [row.to_json() for row in rows],
        },
    )


def _mean(values: list[float | None]) -> float | None:
    """Mean over seeds; None if a seed has no value."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
