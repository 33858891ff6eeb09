"""The table that `robo-rl fly` prints: one row per pilot, with the columns of the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from robo_rl.conf.vision import VisionConfig
from robo_rl.core.text.commands import command
from robo_rl.eval import text

if TYPE_CHECKING:
    from robo_rl.conf.fly import FlyConfig
    from robo_rl.flight.rows import FlyRow

LABELS = {
    "policy": "Learned policy",
    "pid": "PID",
    "geometric": "Geometric (Lee 2010)",
    "mellinger": "Mellinger (2011)",
    "lqr": "LQR",
    "teacher": "Teacher, exact state",
    "blind": "Student without camera",
}
Column = tuple[str, Callable[["FlyRow"], str]]


def _fact(name: str, digits: int, unit: str) -> Callable[[FlyRow], str]:
    def show(row: FlyRow) -> str:
        value = row.facts.get(name)
        return text.NONE if value is None else f"{value:.{digits}f} {unit}".rstrip()

    return show


def _error(row: FlyRow) -> str:
    return text.NONE if row.position_error_m is None else f"{row.position_error_m * 1000:.1f} mm"


def _share(name: str) -> Callable[[FlyRow], str]:
    return lambda row: f"{row.facts.get(name) or 0.0:.1%}"


_INTERVAL: Column = ("95 %", lambda row: text.interval(row.held))
_LEFT: Column = ("left the box", lambda row: f"{row.terminated_fraction:.1%}")
_HOLD: list[Column] = [
    ("error", _error),
    _LEFT,
    ("held", lambda row: text.percent(row.held)),
    _INTERVAL,
    ("chatter", _fact("mean_action_change", 3, "")),
]
COLUMNS: dict[str, list[Column]] = {
    "hover": _HOLD,
    "figure8": _HOLD,
    "vision_hover": _HOLD,
    "waypoints": [
        ("completed", lambda row: text.percent(row.held)),
        _INTERVAL,
        ("per waypoint", _fact("time_per_waypoint_s", 2, "s")),
        ("mean speed", _fact("mean_speed_m_s", 2, "m/s")),
        _LEFT,
    ],
    "race": [
        ("flew its laps", lambda row: text.percent(row.held)),
        _INTERVAL,
        ("lap", _fact("lap_time_s", 2, "s")),
        ("best lap", _fact("lap_time_best_s", 2, "s")),
        ("hit a gate", _share("hit_a_gate")),
        ("ended", lambda row: f"{row.terminated_fraction:.1%}"),
    ],
    "obstacles": [
        ("reached", lambda row: text.percent(row.held)),
        _INTERVAL,
        ("hit a cylinder", _share("hit_a_cylinder")),
        ("time to goal", _fact("time_to_goal_s", 1, "s")),
        ("mean speed", _fact("mean_speed_m_s", 2, "m/s")),
        ("ended", lambda row: f"{row.terminated_fraction:.1%}"),
    ],
}
_HOLD_NOTE = (
    "error: of flights that stayed, mean distance over the last 2 s; on a curve, RMS distance after 2 s. "
    "The figure shows the median at every instant. "
    "left the box: more than 0.6 m from the goal. held: stayed, error below 10 cm. "
    "chatter: mean change of a command, -1 ... 1, from one step to the next."
)
NOTES = {
    "hover": _HOLD_NOTE,
    "figure8": _HOLD_NOTE,
    "vision_hover": _HOLD_NOTE,
    "waypoints": "completed: passed all points of an unseen sequence within the radius, in time. Controllers "
    "fly to the same points and stop at each.",
    "race": "flew its laps: two or more, timed from gate 0 to gate 0; lap: median. Controllers follow a "
    "smooth path through the gates at a constant speed. ended: hit a gate or left the room at any time.",
    "obstacles": "reached: within 0.5 m of the goal over the last second, without a collision. Controllers "
    "follow a straight line; with planner=true a path around all cylinders. ended: "
    "touched a cylinder or left the room, at any time of the flight.",
}
_COST: list[Column] = [
    ("env steps", lambda row: text.count(row.env_steps) if row.env_steps else text.NONE),
    ("CPU", lambda row: text.seconds(row.train_cpu_s) if row.train_cpu_s else text.NONE),
]


def print_table(config: FlyConfig | VisionConfig, rows: list[FlyRow]) -> None:
    """Print the table; without a terminal, at least 120 columns wide."""
    where = " in PyBullet" if isinstance(config, VisionConfig) or config.engine == "pybullet" else ""
    title = f"{config.task}{where}, {config.eval_episodes} starts with disturbance and sensor noise"
    table = Table(
        title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    table.add_column("pilot", no_wrap=True)
    columns = [*COLUMNS[config.task], *_COST]
    for name, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        label = LABELS.get(row.name, row.name) + (f", seed {row.seed}" if row.seed is not None else "")
        table.add_row(label, *(show(row) for _, show in columns))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)
    console.print(f"{NOTES[config.task]} CPU: training without compilation.", style="dim")
    if not isinstance(config, VisionConfig) and config.randomize > 0.0:
        console.print(
            f"Measured on the nominal craft; only training varied it, by randomize={config.randomize:g}. "
            f"Craft that differ: {command('transfer', run=config.out, randomize=config.randomize)}",
            style="dim",
        )
