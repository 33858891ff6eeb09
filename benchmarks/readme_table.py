"""Write the tables of results from the lines under benchmarks/results/. `--check` only compares.

README.md gets the demo's table and the headlines, docs/results.md every line. Quick runs are left out; of
several lines with one name on one machine the newest stands.
"""

from __future__ import annotations

import argparse
import json
import re
import string
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
Line = dict[str, Any]
DEMO = {  # names of the demo's rows, in the order of the table
    "base": "base policy, noise N(0, I)",
    "base_zero_noise": "base policy, zero noise",
    "steered": "noise steering",
    "residual": "residual",
    "head": "single-step head",
}


@dataclass(frozen=True)
class Headline:
    """One row: what was measured, the line's name, and what to read it against; {name} is replaced by that
    line.
    """

    what: str
    name: str
    beside: str


_SUCCESS = "base {finetune/RUN/base/success}, without noise {finetune/RUN/base_zero_noise/success}"
HEADLINES = (
    Headline(
        "Push-T, 206 human demonstrations: max coverage", "pusht/human/max_coverage", "published 0.91–0.95"
    ),
    *(
        Headline(
            f"{task}: {method}",
            f"finetune/{task}/{method}/success",
            _SUCCESS.replace("RUN", f"{task}/{method}"),
        )
        for task in ("peg-insert-side", "assembly", "push", "hand-insert", "pick-place")
        for method in ("steering", "residual", "residual_far", "auto")
    ),
    Headline(
        "assembly: residual, five trainings on one base",
        "finetune/assembly/residual/success/one_base",
        "base {finetune/assembly/residual/base/success/one_base}",
    ),
    Headline(
        "arm6/reach, 100 episodes driven through the nodes, recorded, imported",
        "teleop/recorded/success",
        "as many from the environment itself {teleop/collected/success}",
    ),
    Headline("single-step head, 5 M U-Net, one core", "head/unet_5m/decisions_per_s", "aim 400"),
    Headline("... against 10 steps of the same network", "head/unet_5m/speedup_vs_10_steps", "aim 10"),
    Headline("single-step head, MLP, one core", "head/mlp/decisions_per_s", "aim 10,000"),
    Headline("head less teacher, points of success", "head/success_gap_points", "aim at most 1"),
    Headline("SAC updates, ratio to Stable-Baselines3", "learner/sac/updates_ratio_vs_sb3", "aim 3"),
    Headline("TD3 updates, ratio to Stable-Baselines3", "learner/td3/updates_ratio_vs_sb3", "aim 3"),
    *(
        Headline(
            f"{learner.upper()} on {env}, 100,000 steps",
            f"learner/{learner}/{env}/return",
            f"Stable-Baselines3 {{learner/{learner}/{env}/sb3_return}}",
        )
        for learner in ("sac", "td3")
        for env in ("Hopper-v5", "HalfCheetah-v5")
    ),
    Headline(
        "training windows, 2 cameras of 128 x 128",
        "windows/raw/per_cpu_s",
        "a zarr v2 buffer {windows/zarr_v2_replay_buffer/per_cpu_s}",
    ),
    Headline("quadcopter steps, RK4, 16,384 drones", "quad/rk4/16384/drone_steps_per_cpu_s", "aim 80 M"),
    Headline("quadcopter steps, RK4, 1,024 drones", "quad/rk4/1024/drone_steps_per_cpu_s", "aim 20 M"),
    Headline("... with gradients", "quad/grad/1024/drone_steps_per_cpu_s", "aim 4.4 M"),
    Headline("... as an environment", "quad/env/16384/env_steps_per_cpu_s", "aim 25 M"),
    Headline(
        "hover, position error",
        "hover/first_order/700_updates/position_error_m",
        "PID {hover/pid/position_error_m}, geometric {hover/geometric/position_error_m}",
    ),
    Headline(
        "hover, flights that left the box",
        "hover/first_order/700_updates/terminated_fraction",
        "PID {hover/pid/terminated_fraction}, geometric {hover/geometric/terminated_fraction}",
    ),
    Headline("hover, CPU-seconds of training", "hover/first_order/700_updates/train_cpu_s", "aim 30"),
    Headline(
        "hover by thrust and body rates over a link, position error",
        "hover/rates/first_order/900_updates/position_error_m",
        "PID {hover/rates/pid/position_error_m}, geometric {hover/rates/geometric/position_error_m}",
    ),
    Headline(
        "... flights that left the box",
        "hover/rates/first_order/900_updates/terminated_fraction",
        "PID {hover/rates/pid/terminated_fraction}, geometric {hover/rates/geometric/terminated_fraction}",
    ),
    Headline(
        "figure-eight at 2 m/s, RMSE",
        "tracking/figure8/learned/rmse_m",
        "PID {tracking/figure8/pid/rmse_m}, geometric {tracking/figure8/geometric/rmse_m}, "
        "Mellinger {tracking/figure8/mellinger/rmse_m}",
    ),
    *(
        Headline(
            f"race on {track}: starts with two laps",
            f"race/{track}/policy/laps_completed",
            f"a lap in {{race/{track}/policy/lap_time_s}} s",
        )
        for track in ("ring", "splits")
    ),
    Headline(
        "hover, held in the dynamics of its training",
        "transfer/hover/quad/held",
        "PyBullet {transfer/hover/pybullet/held}",
    ),
    *(
        Headline(
            f"{task}, 64 environments: env steps per CPU-second",
            f"engine/mujoco/{task}/env_steps_per_cpu_s",
            f"mj_step alone {{engine/plain_mujoco/{task}/env_steps_per_cpu_s}}, MetaWorld's peg "
            "{engine/metaworld/peg-insert-side-v3/env_steps_per_cpu_s}; aim 10,000",
        )
        for task in ("lift", "peg_insert")
    ),
    Headline("pictures of 84 px, a scene of an arm", "engine/mujoco/render84/frames_per_cpu_s", "aim 1,300"),
    *(
        Headline(
            f"peg insertion {how}, moved to PyBullet",
            f"transfer/peg_insert/{source}/pybullet/success",
            f"in MuJoCo {{transfer/peg_insert/{source}/mujoco/success}}",
        )
        for how, source in (("fine-tuned in MuJoCo", "mujoco"), ("... with randomisation", "mujoco_mild"))
    ),
    *(
        Headline(
            f"mission {name}: scenes satisfied",
            f"mission/{name}/policy/satisfied",
            "PID {mission/NAME/pid/satisfied}".replace("NAME", name),
        )
        for name in ("reach", "avoid", "order", "patrol", "key")
    ),
    Headline("swarm: 8 drones, 20 % obstacles, success", "swarm/8x20/success", "aim 0.95"),
    Headline("swarm: 32 drones, 80 % obstacles, success", "swarm/32x80/success", "reported"),
    Headline(
        "hover by a camera, in PyBullet: held",
        "vision/policy/held",
        "told where it is {vision/teacher/held}, camera dark {vision/blind/held}",
    ),
    Headline(
        "a drone by the arms' verbs: residual on a flow base",
        "quad_chain/hover/residual/success",
        "base {quad_chain/hover/base_zero_noise/success}, head {quad_chain/hover/head/success}, "
        "PID {quad_chain/hover/pid/success}",
    ),
    Headline("MLP head and safety filter at 1 kHz, p99", "loop/inproc/1khz/decision_ms_p99", "aim 0.3"),
    Headline(
        "two processes over DDS at 100 Hz, round trip",
        "loop/dds/100/rtt_ms_p50",
        "aim 0.5; the binding alone {loop/dds/100/rtt_ms_p50 [cyclonedds alone]}",
    ),
    Headline("... missed ticks", "loop/dds/100/missed_percent", "aim 0.5"),
    Headline("policy killed: the filter holds after", "loop/kill/policy/hold_ms", "at 50 Hz, aim 40"),
    Headline("states lost: the filter holds after", "loop/kill/state/hold_ms", "at 100 Hz, aim 30"),
    Headline("64-64 tanh policy in C", "c/mlp64/us_per_call", "aim 15"),
)


def load(folder: Path) -> dict[str, dict[str, Line]]:
    """machine -> name -> newest line. What a peer did has the same name and its own place: `name [peer]`."""
    texts = [
        text for path in sorted(folder.glob("*.jsonl")) for text in path.read_text().splitlines() if text
    ]
    lines = [json.loads(text) for text in texts]
    found: dict[str, dict[str, Line]] = {}
    for line in sorted(lines, key=lambda line: str(line.get("date", ""))):
        if not line.get("quick"):
            name = f"{line['name']} [{line['peer']}]" if "peer" in line else line["name"]
            found.setdefault(line["machine"], {})[name] = line
    return found


def number(value: float | str | None) -> str:
    """Four significant digits, thousands separated, millions as such; a dash for a seed that has no such
    figure.
    """
    if value is None:
        return "–"
    if isinstance(value, str):  # such as 790/800
        return value
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4g}"


def shown(line: Line) -> str:
    """A success rate shows its count and 95 % Wilson interval, a mean over seeds every seed."""
    unit = line["unit"].replace("fraction", "")
    value = f"{number(line['value'])} {unit}".strip()
    if "k" in line and "n" in line:
        value += f" ({line['k']}/{line['n']}"
        value += ", {:.2f}–{:.2f})".format(*line["wilson95"]) if "wilson95" in line else ")"
    if "per_seed" in line:
        value += f" (seeds: {', '.join(number(seed) for seed in line['per_seed'])}"
        value += "; mean {:.2f}–{:.2f})".format(*line["bootstrap95"]) if "bootstrap95" in line else ")"
    return value


def demo_table(lines: dict[str, Line]) -> str:
    """What `make demo` printed, a row per policy; empty when it was not measured."""
    rows = []
    for name, title in DEMO.items():
        line, took = lines.get(f"demo/{name}/success"), lines.get(f"demo/{name}/decision_ms_p50")
        if line is not None and took is not None:
            low, high = line["wilson95"]
            ms = f"{took['value']:.2g} / {took['p99']:.2g}"
            p = "–" if line["p_vs_base"] is None else f"{line['p_vs_base']:.1g}"
            rows.append(
                f"| {title} | {line['k']}/{line['n']} | {low:.2f}–{high:.2f} | {p} | {ms} "
                f"| {line['env_steps']:,} | {line['train_cpu_s']:.0f} |"
            )
    if not rows:
        return ""
    head = "| policy | success | 95 % | p vs base | ms per decision, p50 / p99 | env steps | CPU-s |\n"
    wall = lines.get("demo/wall_minutes")
    after = (
        ""
        if wall is None
        else f"\nThe whole demo took {wall['value']:.1f} minutes (commit {commits(wall)}).\n"
    )
    return head + "| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n" + after


def reference(name: str, lines: dict[str, Line]) -> Line | None:
    """What a row is read against: the bases of its own seeds or, of older results, those of its task."""
    return lines.get(name) or lines.get(
        re.sub(r"^(finetune/[^/]+)/[^/]+(/base(_zero_noise)?/)", r"\1\2", name)
    )


def against(ours: Line, theirs: Line) -> float | str:
    """What ours is read against. Of more seeds than ours has, as older results may say, those that ours has:
    seeds count from 0.
    """
    mine, all_of_them = len(ours.get("per_seed", [])), theirs.get("per_seed", [])
    value: float | str = fmean(all_of_them[:mine]) if 0 < mine < len(all_of_them) else theirs["value"]
    return value


def headline_table(lines: dict[str, Line]) -> str:
    """The rows of HEADLINES that have been measured."""
    rows = []
    for item in HEADLINES:
        wanted = [name for _, name, _, _ in string.Formatter().parse(item.beside) if name]
        theirs = {name: line for name in wanted if (line := reference(name, lines)) is not None}
        if item.name in lines and len(theirs) == len(wanted):
            beside = item.beside
            for name, line in theirs.items():
                beside = beside.replace("{" + name + "}", number(against(lines[item.name], line)))
            rows.append(f"| {item.what} | {shown(lines[item.name])} | {beside} |")
    return "| what | measured | beside |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n" if rows else ""


def full_table(lines: dict[str, Line]) -> str:
    """Every line."""
    rows = "\n".join(
        f"| `{name}` | {shown(line)} | {commits(line)} |" for name, line in sorted(lines.items())
    )
    return f"| what | value | commit |\n| --- | --- | --- |\n{rows}\n"


def commits(line: Line) -> str:
    """Where it was measured; of trainings that were kept and only summed up later, where they were
    trained.
    """
    return ", ".join(line.get("trained_at", [line.get("demo_commit", line["commit"])]))


def for_readme(results: dict[str, dict[str, Line]]) -> str:
    """Per machine, the best known first: the demo's table and the headlines; says so when nothing was
    measured yet.
    """
    if not results:
        return "No results are kept in `benchmarks/results/` yet; `make demo` prints its own table.\n"
    return "\n".join(
        f"**{machine}**\n\n" + "\n".join(part for part in (demo_table(lines), headline_table(lines)) if part)
        for machine, lines in sorted(results.items(), key=lambda item: -len(item[1]))
    )


def for_docs(results: dict[str, dict[str, Line]]) -> str:
    return "\n".join(f"**{machine}**\n\n{full_table(lines)}" for machine, lines in sorted(results.items()))


def rewrite(text: str, tables: str, where: str = "README.md") -> str:
    """`text` with the block between the markers replaced."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{where} needs the two lines '{BEGIN}' and '{END}' around its table of results.")
    return f"{head}{BEGIN}\n\n{tables}\n{END}{tail}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 when a page is out of date"
    )
    check = options.parse_args().check
    results, stale = load(ROOT / "benchmarks" / "results"), 0
    for where, tables in (("README.md", for_readme(results)), ("docs/results.md", for_docs(results))):
        old = (ROOT / where).read_text()
        new = rewrite(old, tables, where)
        if check:
            print(
                f"{where} is {'up to date' if new == old else 'out of date: run benchmarks/readme_table.py'}."
            )
            stale |= new != old
        elif new != old:
            (ROOT / where).write_text(new)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
