"""Outputs of `robo-rl transfer`: the table, results.json and pictures."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from policies.checkpoint import read_policy_json
from policies.deploy.bundle import MANIFEST
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.core.text.commands import command
from robo_rl.eval import text
from robo_rl.eval.flight.flight_log import FlightLog
from robo_rl.eval.flight.flight_plots import write_flight_plots
from robo_rl.eval.flight.flight_video import write_flight_video
from robo_rl.eval.stats import SIGNIFICANT
from robo_rl.flight.flight_run import FlightRun
from robo_rl.flight.fly.report import FILMED, USABLE, flight_log, halved, use_of_bundle
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.fly.table import LABELS
from robo_rl.flight.transfer.film import check_size, film
from robo_rl.runs.outputs import free_path
from robo_rl.runs.run_dir import holder_of
from sim.engines.bullet.effects import AirEffects, borrowed
from sim.flight.bullet.flights import floor_of

if TYPE_CHECKING:
    from robo_rl.conf.fly import FlyConfig
    from robo_rl.conf.transfer import TransferConfig
    from robo_rl.flight.rows import Drop, TransferRow

LEAST_VARIED = 0.1  # half-width of the parameters that is advised after a loss, at least
_HALVINGS = 4  # of the increase of that half-width, until the craft allows it
# Task -> heading and meaning of a success, heading of the flights that ended early.
_HELD = ("held", "stayed, error below 10 cm", "left the box")
_SUCCESS = {
    "waypoints": ("completed", "passed all points within the radius, in time", "left the room"),
    "race": ("flew its laps", "two or more; ended: hit a gate or left the room at any time", "ended"),
    "obstacles": (
        "reached",
        "within 0.5 m of the goal over the last second, without a collision; ended: touched a cylinder or "
        "left the room, at any time",
        "ended",
    ),
}
_FLOOR_SEEN_M = 0.8  # a lower floor would make the drones small in the video


def finish(
    config: TransferConfig,
    flown: FlightRun,
    scene: AirEffects,
    rows: list[TransferRow],
    drops: dict[str, Drop],
) -> int:
    """Write results.json and pictures into `out`, and print the table, also where they cannot be written."""
    out = Path(config.out)
    try:
        names = write_files(out, config, flown, scene, rows, drops)
    finally:
        print_table(config, flown, scene, rows, drops)
    print(f"pictures: {out}/{', '.join(names)}; figures: {out}/results.json")
    if following := next_step(config, flown, rows[0], drops["policy"]):
        print(f"Next:   {following}")
    return 0


def write_files(
    out: Path,
    config: TransferConfig,
    flown: FlightRun,
    scene: AirEffects,
    rows: list[TransferRow],
    drops: dict[str, Drop],
) -> list[str]:
    """Write results.json, and the pictures, whose names are returned."""
    out.mkdir(parents=True, exist_ok=True)
    write_results(out / "results.json", config, flown, scene, rows, drops)
    logs = [log_of(flown, row) for row in rows]
    title = f"{flown.trained.task}: {flown.craft.name}, {config.starts} starts in two engines"
    write_flight_plots(out / "transfer.png", logs, title)
    films = []
    if config.video:
        floor_m = floor_of(flown.task, scene)
        seen_m = floor_m if floor_m > -_FLOOR_SEEN_M else None
        films.append(write_flight_video(out / "transfer.mp4", logs[1], drones=FILMED, floor_m=seen_m))
    if config.pretty:
        films.append(film(out / "pybullet.mp4", flown, scene, rows[1].trial, check_size(config.size)))
    return ["transfer.png", *(path.name for path in films)]


def next_step(config: TransferConfig, flown: FlightRun, home: TransferRow, drop: Drop) -> str:
    """Training with more varied parameters after a loss, a longer one of a policy that seldom succeeds, else
    the use of its bundle, or its training with one. A craft that cannot be varied more is trained for longer.
    home: in the engine of training. A loss is significant, or one of more than half of a usable success.
    """
    run, trained = holder_of(flown.folder), flown.trained
    changes: dict[str, float] = {"updates": 2 * trained.updates}
    why = "train for longer"
    lost = halved(home.held.rate, home.held.rate - drop.points / 100.0)
    if drop.points <= 0.0 or (drop.test.p_value >= SIGNIFICANT and not lost):
        if home.held.rate >= USABLE:
            bundle = _bundle_of(flown.folder)
            return _own_bundle(flown) if bundle is None else use_of_bundle(trained, str(bundle))
    elif (width := _more_varied(trained)) is not None:
        changes, why = {"randomize": width}, "vary the craft in training"
    file = run / "config.yaml"
    like: dict[str, object] = {"config": file, "craft": config.craft}  # craft: None unless another was flown
    if not file.is_file():
        run, like = Path("runs/fly"), {"task": trained.task, "craft": trained.craft}
    like |= {
        "speed_m_s": config.speed_m_s,
        "eval_s": config.eval_s,
    }  # those that were flown, if not as trained
    out = free_path(Path(f"{run}-again"))
    return f"{command('fly', **like, **changes, out=out)}   ({why})"


def _bundle_of(policy: Path) -> Path | None:
    """Bundle that was exported from this policy folder; None without one. A run with several seeds holds the
    bundle of one of them.
    """
    if (policy / MANIFEST).is_file():
        return policy
    bundle = holder_of(policy) / "bundle"
    if not (bundle / MANIFEST).is_file():
        return None
    exported, flown = (read_policy_json(folder)["weights_crc32"] for folder in (bundle, policy))
    return bundle if exported == flown else None


def _own_bundle(flown: FlightRun) -> str:
    """The training of this policy alone: a run with several seeds makes the bundle of its first one, and no
    other verb knows the flight envelope that a bundle needs. Empty where its seed or settings are unknown.
    """
    seed, file = read_policy_json(flown.folder)["train"].get("seed"), holder_of(flown.folder) / "config.yaml"
    if seed is None or not file.is_file():
        return ""
    out = free_path(Path(f"{holder_of(flown.folder)}-seed{seed}"))
    again = command("fly", config=file, seed=seed, seeds=1, out=out)
    return f"{again}   (the same policy, with a bundle)"


def _more_varied(trained: FlyConfig) -> float | None:
    """Half-width of the parameters for another training: twice the present one, or where the craft could not
    fly with it, a value between the two; None where it allows none.
    """
    width = max(LEAST_VARIED, 2 * trained.randomize)
    for _ in range(_HALVINGS + 1):
        try:
            FlightSetup.of(replace(trained, randomize=width))
        except ConfigError:
            width = round((trained.randomize + width) / 2, 2)
        else:
            return width if width > trained.randomize else None
    return None


def log_of(flown: FlightRun, row: TransferRow) -> FlightLog:
    """Log of a trial for plots and videos, named after pilot and engine."""
    log = flight_log(flown.task, row.pilot, row.trial)
    return replace(log, label=f"{LABELS.get(row.pilot, row.pilot)}, {row.engine}")


def write_results(
    path: Path,
    config: TransferConfig,
    flown: FlightRun,
    scene: AirEffects,
    rows: list[TransferRow],
    drops: dict[str, Drop],
) -> None:
    """Write every figure of the table, and what is needed to reproduce it."""
    policy = drops["policy"]
    write_json(
        path,
        {
            "commit": commit(),
            "machine": machine(),
            "policy": str(flown.folder),
            "task": flown.trained.task,
            "craft": flown.craft.name,
            "engine": config.engine,
            "scene": asdict(scene)
            | {"floor_m": floor_of(flown.task, scene), "borrowed": borrowed(flown.craft, scene)},
            "episodes": config.starts,
            "seed": config.seed,
            "randomize": config.randomize,
            **policy.to_json(),
            "rows": [row.to_json() for row in rows],
            "drops": {name: drop.to_json() for name, drop in drops.items()},
        },
    )


def print_table(
    config: TransferConfig,
    flown: FlightRun,
    scene: AirEffects,
    rows: list[TransferRow],
    drops: dict[str, Drop],
) -> None:
    """Print one row per pilot and engine; red where success is significantly lower, else green."""
    craft = f"{flown.craft.name}{f', ±{config.randomize:.0%}' if config.randomize else ''}"
    title = f"{flown.trained.task}, {craft}: {config.starts} starts, the same in both engines"
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    for column in ("pilot", "engine"):
        table.add_column(column, no_wrap=True)
    success, meaning, ended = _SUCCESS.get(flown.trained.task, _HELD)
    for column in ("k/n", success, "95 %", ended, "error", "difference", "p"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        drop = drops[row.pilot] if row.engine == config.engine else None
        table.add_row(
            LABELS.get(row.pilot, row.pilot),
            row.engine,
            f"{row.held.k}/{row.held.n}",
            text.percent(row.held),
            text.interval(row.held),
            f"{row.left_fraction:.1%}",
            text.NONE if row.error_m is None else f"{row.error_m * 1000:.1f} mm",
            text.NONE if drop is None else _difference(drop),
            text.NONE if drop is None else text.p_value(drop.test.p_value),
        )
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)
    air = ", ".join(scene.effects) or "none"
    lent = ", ".join(borrowed(flown.craft, scene))
    console.print(
        f"engine {config.engine}: {1.0 / flown.task.dt_s * scene.substeps(flown.task.dt_s):g} steps/s, "
        f"effects: {air}{f' ({lent} of {scene.donor})' if lent else ''}, {_surroundings(flown, scene)}. "
        f"95 %: Wilson interval in per cent. {success}: {meaning}. difference: percentage points of it, "
        "paired by start; p: exact McNemar test.",
        style="dim",
    )


def _surroundings(flown: FlightRun, scene: AirEffects) -> str:
    """Floor and other craft, in words."""
    in_room = flown.task.floor_m is not None
    floor = "floor of the room" if in_room else f"floor {scene.height_m:g} m below the goal"
    if scene.above_m is None:
        return floor
    return f"{floor}, another craft {scene.above_m:g} m above the {'origin' if in_room else 'goal'}"


def _difference(drop: Drop) -> str:
    lost = drop.points > 0.0 and drop.test.p_value < SIGNIFICANT
    return f"[{'bold red' if lost else 'bold green'}]{0.0 - drop.points:+.1f}[/]"
