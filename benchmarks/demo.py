"""Print the table of `make demo` as benchmark lines, from the results.json that the demo wrote.

make demo && .venv/bin/python benchmarks/demo.py --out
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from common import emit, machine, parser


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument(
        "--results", type=Path, default=Path("runs/demo/results.json"), help="what the demo wrote"
    )
    args = options.parse_args()
    if args.quick:
        print(
            "make demo has no quick form, so no line is written. Leave --quick out.",
            file=sys.stderr,
        )
        return
    if not args.results.exists():
        raise SystemExit(f"{args.results} does not exist. Run make demo first, or give --results.")
    found = json.loads(args.results.read_text())
    if found["machine"] != machine():
        raise SystemExit(
            f"{args.results} was measured on {found['machine']}. Run this there: lines name the machine."
        )
    for row in found["rows"]:
        rate = {key: row[key] for key in ("k", "n", "wilson95", "p_vs_base", "env_steps", "train_cpu_s")}
        emit(f"demo/{row['name']}/success", row["success"], "", **rate, demo_commit=found["commit"])
        emit(f"demo/{row['name']}/decision_ms_p50", row["decision_ms_p50"], "ms", p99=row["decision_ms_p99"])
    emit("demo/wall_minutes", found["wall_s"] / 60.0, "min", demo_commit=found["commit"])


if __name__ == "__main__":
    main()
