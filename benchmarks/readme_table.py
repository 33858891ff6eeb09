"""Write the README's table of results from the lines under benchmarks/results/. `--check` only compares.

Quick runs are left out; of several lines with one name on one machine the newest stands.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
Line = dict[str, Any]


def load(folder: Path) -> dict[str, dict[str, Line]]:
    """machine -> name -> newest line."""
    texts = [text for path in sorted(folder.glob("*.jsonl")) for text in path.read_text().splitlines() if text]
    lines = [json.loads(text) for text in texts]
    found: dict[str, dict[str, Line]] = {}
    for line in sorted(lines, key=lambda line: str(line.get("date", ""))):
        if not line.get("quick"):
            found.setdefault(line["machine"], {})[line["name"]] = line
    return found


def number(value: float) -> str:
    """Four significant digits, thousands separated."""
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4g}"


def row(line: Line) -> str:
    """One table row; a success rate shows its count and 95 % Wilson interval, a mean over seeds every seed."""
    value = f"{number(line['value'])} {line['unit']}".strip()
    if "k" in line and "n" in line:
        value += f" ({line['k']}/{line['n']}"
        value += ", {:.2f}–{:.2f})".format(*line["wilson95"]) if "wilson95" in line else ")"
    if "per_seed" in line:
        value += f" (seeds: {', '.join(number(seed) for seed in line['per_seed'])}"
        value += "; mean {:.2f}–{:.2f})".format(*line["bootstrap95"]) if "bootstrap95" in line else ")"
    return f"| `{line['name']}` | {value} | {line['commit']} |"


def table(results: dict[str, dict[str, Line]]) -> str:
    """Markdown, one table per machine; says so when nothing has been measured yet."""
    if not results:
        return "No results are kept in `benchmarks/results/` yet; `make demo` prints its own table.\n"
    parts = []
    for machine, lines in sorted(results.items()):
        rows = "\n".join(row(line) for _, line in sorted(lines.items()))
        parts.append(f"**{machine}**\n\n| what | value | commit |\n| --- | --- | --- |\n{rows}\n")
    return "\n".join(parts)


def rewrite(readme: str, results: dict[str, dict[str, Line]]) -> str:
    """`readme` with the block between the markers replaced."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md needs the two lines '{BEGIN}' and '{END}' around its table of results.")
    return f"{head}{BEGIN}\n\n{table(results)}\n{END}{tail}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="change nothing; exit 1 when the README is out of date")
    check = options.parse_args().check
    path = ROOT / "README.md"
    old = path.read_text()
    new = rewrite(old, load(ROOT / "benchmarks" / "results"))
    if check:
        print("README.md is up to date." if new == old else "README.md is out of date: run benchmarks/readme_table.py")
        return int(new != old)
    path.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
