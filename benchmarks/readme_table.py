"""Write the tables of results from the lines under benchmarks/results/. `--check` only compares.

README.md gets one table of headlines, docs/results.md a section per topic with the headlines of each machine
and, folded, every line. benchmarks/headlines.yaml lists the rows. Quick runs are left out; of several lines
with one name on one machine the newest counts.
"""

from __future__ import annotations

import argparse
import json
import re
import string
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from robo_rl.eval.stats import SuccessRate, mean_over_seeds, rate_over_seeds

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
Line = dict[str, Any]
Lines = dict[str, Line]  # name -> line, of one machine
DEMO = {  # names of the demo's rows, in the order of the table
    "base": "base policy, noise N(0, I)",
    "base_zero_noise": "base policy, zero noise",
    "steered": "noise steering",
    "residual": "residual",
    "head": "single-step head",
}


DEMO_TOPIC, OTHER = "The demo", "Other"
TOPICS = {  # section of docs/results.md -> first parts of its lines' names
    DEMO_TOPIC: ("demo",),
    "Base policies": ("few_demos", "video_values"),
    "Fine-tuning": ("finetune", "suite", "pusht", "pixels"),
    "Learning inside the denoising": ("denoising",),
    "Vision-language-action policies": ("vla",),
    "Single-step head": ("head",),
    "Learners": ("learner", "many_lanes"),
    "Quadcopters: one craft": ("fly", "hover", "tracking", "waypoints", "race", "vision", "quad_chain", "c"),
    "Quadcopters: obstacles, swarms, missions": ("obstacles", "swarm", "mission"),
    "Engines": ("engine", "quad"),
    "Transfer to another engine": ("transfer",),
    "Data": ("store", "windows", "teleop", "formats", "corruption", "overlay"),
    "Recording app": ("app", "chain"),
    "Devices and processes": ("device", "gpu", "scale"),
    "Robot side": ("loop", "driver", "controller", "node", "attack", "hold", "teleop_ik"),
}


@dataclass(frozen=True)
class Headline:
    """Row of a table: description, name of its line, and what it is compared with.

    In `beside`, {name} stands for the value of that line and {../name} for a line next to the row's own.
    """

    what: str
    name: str
    beside: str

    @property
    def wanted(self) -> dict[str, str]:
        """Placeholder -> name of its line."""
        fields = [field for _, field, _, _ in string.Formatter().parse(self.beside) if field]
        parent = self.name.rpartition("/")[0]
        return {field: re.sub(r"^\.\./", f"{parent}/", field) for field in fields}


@cache
def headlines(table: str) -> tuple[Headline, ...]:
    """Rows of the table `front` (README.md) or `all` (docs/results.md)."""
    rows = yaml.safe_load((ROOT / "benchmarks" / "headlines.yaml").read_text())[table]
    return tuple(Headline(*row) for row in rows)


def load(folder: Path) -> dict[str, Lines]:
    """machine -> name -> newest line. A peer's line is kept as `name [peer]`."""
    texts = [
        text for path in sorted(folder.glob("*.jsonl")) for text in path.read_text().splitlines() if text
    ]
    lines = [json.loads(text) for text in texts]
    found: dict[str, Lines] = {}
    for line in sorted(lines, key=lambda line: str(line.get("date", ""))):
        if not line.get("quick"):
            name = f"{line['name']} [{line['peer']}]" if "peer" in line else line["name"]
            found.setdefault(line["machine"], {})[name] = line
    return found


def number(value: float | str | None) -> str:
    """Four significant digits with thousands separators, millions as such; a dash for a missing value."""
    if value is None:
        return "–"
    if isinstance(value, str):  # such as 790/800
        return value
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4g}"


def with_unit(line: Line) -> str:
    """Value and unit; a fraction has no unit."""
    unit = re.sub(r"\b(fraction|share|ratio|of episodes)\b", "", line["unit"]).strip()
    return f"{number(line['value'])} {unit}".strip()


def over_seeds(line: Line) -> tuple[float, float] | None:
    """95 % interval of the mean over seeds, Student's; older lines hold a bootstrap, which is too narrow."""
    if "t95" in line or "bootstrap95" not in line:
        return tuple(line["t95"]) if "t95" in line else None
    values, episodes = line["per_seed"], line.get("episodes")
    fraction = "fraction" in line["unit"]
    if fraction and episodes:
        found = rate_over_seeds([SuccessRate(round(each * episodes), episodes) for each in values])
    else:
        found = mean_over_seeds(values)
    return (max(0.0, found.low), min(1.0, found.high)) if fraction else (found.low, found.high)


def shown(line: Line) -> str:
    """Value with its unit; a success rate with count and 95 % Wilson interval, a mean with every seed."""
    value = with_unit(line)
    if "k" in line and "n" in line:
        value += f" ({line['k']}/{line['n']}"
        value += ", {:.2f}–{:.2f})".format(*line["wilson95"]) if "wilson95" in line else ")"
    if "per_seed" in line:
        value += f" (seeds: {', '.join(number(seed) for seed in line['per_seed'])}"
        interval = over_seeds(line)
        value += ")" if interval is None else "; mean {:.2f}–{:.2f})".format(*interval)
    return value


def brief(line: Line) -> str:
    """Value with its unit, and the number of seeds or episodes of the mean."""
    seeds = len(line.get("per_seed", []))
    if seeds > 1:
        return f"{with_unit(line)} ({seeds} seeds)"
    return with_unit(line) + (f" ({line['k']}/{line['n']})" if "k" in line and "n" in line else "")


def demo_table(lines: Lines) -> str:
    """Result of `make demo`, a row per policy; empty if it was not measured."""
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


def reference(name: str, lines: Lines) -> Line | None:
    """Line that a row is compared with: the base of its own seeds or, in older results, that of its task."""
    return lines.get(name) or lines.get(
        re.sub(r"^(finetune/[^/]+)/[^/]+(/base(_zero_noise)?/)", r"\1\2", name)
    )


def against(ours: Line, theirs: Line) -> float | str:
    """Value of `theirs` over the seeds of `ours`, if `theirs` has more. Seeds count from 0."""
    mine, every_seed = len(ours.get("per_seed", [])), theirs.get("per_seed", [])
    value: float | str = fmean(every_seed[:mine]) if 0 < mine < len(every_seed) else theirs["value"]
    return value


def compared(item: Headline, lines: Lines) -> str | None:
    """Third cell of a row; None if the row or a line that it is compared with was not measured."""
    if item.name not in lines:
        return None
    beside = item.beside
    for field, name in item.wanted.items():
        theirs = reference(name, lines)
        if theirs is None:
            return None
        beside = beside.replace("{" + field + "}", number(against(lines[item.name], theirs)))
    return beside


def table(rows: list[str]) -> str:
    """Three columns; empty without rows."""
    return (
        "| what | measured | compared with |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n" if rows else ""
    )


def headline_table(lines: Lines, topic: str | None = None) -> str:
    """Measured rows of the table `all`, of one machine; those of one topic, or all."""
    return table(
        [
            f"| {item.what} | {shown(lines[item.name])} | {beside} |"
            for item in headlines("all")
            if topic in (None, topic_of(item.name)) and (beside := compared(item, lines)) is not None
        ]
    )


def full_table(lines: Lines) -> str:
    """Table of all lines."""
    rows = "\n".join(
        f"| `{name}` | {shown(line)} | {commits(line)} |" for name, line in sorted(lines.items())
    )
    return f"| what | value | commit |\n| --- | --- | --- |\n{rows}\n"


def commits(line: Line) -> str:
    """Commit of the measurement, or, for stored trainings that were summarised later, commits of the
    trainings.
    """
    return ", ".join(line.get("trained_at", [line.get("demo_commit", line["commit"])]))


def for_readme(results: dict[str, Lines]) -> str:
    """The table `front`: of several machines, each row's newest measurement."""
    rows = []
    for item in headlines("front"):
        measured = [lines for lines in results.values() if compared(item, lines) is not None]
        if measured:
            newest = max(measured, key=lambda lines: str(lines[item.name].get("date", "")))
            rows.append(f"| {item.what} | {brief(newest[item.name])} | {compared(item, newest)} |")
    return table(rows) or "No results are kept in `benchmarks/results/` yet; `make demo` prints its own.\n"


def topic_of(name: str) -> str:
    """Section of a line."""
    first = name.split("/")[0]
    return next((topic for topic, firsts in TOPICS.items() if first in firsts), OTHER)


def for_docs(results: dict[str, Lines]) -> str:
    """A section per topic; in it the machines, that with most lines first: headlines, all lines folded."""
    machines = sorted(results.items(), key=lambda item: -len(item[1]))
    sections = []
    for topic in (*TOPICS, OTHER):
        parts = [text for machine, lines in machines if (text := of_machine(topic, machine, lines))]
        if parts:
            sections.append("\n".join([f"## {topic}\n", *parts]))
    return "\n".join(sections)


def of_machine(topic: str, machine: str, lines: Lines) -> str:
    """Tables of a topic, measured on one machine; empty without a line of the topic."""
    own = {name: line for name, line in lines.items() if topic_of(name) == topic}
    if not own:
        return ""
    title = f"**{machine}**\n\n"
    folded = (
        f'<details markdown="1">\n<summary>{machine}: every line ({len(own)})</summary>\n\n'
        f"{full_table(own)}\n</details>\n"
    )
    headlines = demo_table(lines) if topic == DEMO_TOPIC else headline_table(lines, topic)
    return f"{title}{headlines}\n{folded}" if headlines else folded


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
            state = "up to date" if new == old else "out of date: run benchmarks/readme_table.py"
            print(f"{where} is {state}.")
            stale |= new != old
        elif new != old:
            (ROOT / where).write_text(new)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
