"""Arm policies fine-tuned in MuJoCo and run unchanged in PyBullet: success that they keep.

Each seed runs the whole workflow by the verbs: 20 demonstrations of the noisy expert, a flow base policy,
`finetune method=auto`, then `transfer` on 100 starts that are not used before. Names:
transfer/<task>/<from>/<to>/success, pooled over seeds. <from>: "mujoco" was trained without randomisation;
"mujoco_mild" and "mujoco_wide" with these presets, and are measured without; "mujoco_mild_within" is the
policy of mild, measured with it. Stages that are in `--folder` are not done again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from common import emit, own_folder

from robo_rl.eval.stats import SuccessRate

ARMS = {  # from -> (randomisation of its training, of its measurement)
    "mujoco": ("none", "none"),
    "mujoco_mild": ("mild", "none"),
    "mujoco_mild_within": ("mild", "mild"),
    "mujoco_wide": ("wide", "none"),
}
Row = dict[str, Any]


def report_arm(task: str, options: argparse.Namespace) -> None:
    """Train missing policies, and emit the success in every engine."""
    seeds, root = 1 if options.quick else options.seeds, own_folder(options.folder)
    for source in options.arms.split(",")[: 1 if options.quick else None]:
        if source not in ARMS:
            raise SystemExit(f"--arms {source} is unknown; known: {', '.join(ARMS)}")
        trained, measured = ARMS[source]
        folders = [root / task / trained / f"seed{seed}" for seed in range(seeds)]
        found = [
            results_of(task, trained, measured, seed, folder, options) for seed, folder in enumerate(folders)
        ]
        for engine in [row["engine"] for row in found[0]]:
            rows = [next(row for row in each if row["engine"] == engine) for each in found]
            rate = SuccessRate(sum(row["k"] for row in rows), sum(row["n"] for row in rows))
            kept = [row["kept"] for row in rows if row["kept"] is not None]
            emit(
                f"transfer/{task}/{source}/{engine}/success",
                rate.rate,
                "fraction of episodes",
                k=rate.k,
                n=rate.n,
                wilson95=list(rate.wilson()),
                by_seed=[row["success"] for row in rows],
                kept=fmean(kept) if kept else None,
                mcnemar_p=[row["mcnemar_p"] for row in rows],
            )


def results_of(
    task: str, trained: str, measured: str, seed: int, folder: Path, options: argparse.Namespace
) -> list[Row]:
    """Rows of one seed's results.json."""
    env, there = (f"arm/{task}:randomise={name}" for name in (trained, measured))
    demos, updates, steps, episodes = (3, 100, 600, 4) if options.quick else (20, 2000, 50_000, 100)
    data, base, tuned, out = (folder / name for name in ("data", "base", "tuned", f"transfer-{measured}"))
    own = f"seed={seed}"
    stages = {
        data / "dataset.json": [
            "collect",
            f"env={env}",
            f"episodes={demos}",
            "noise=0.3",
            f"out={data}",
            own,
        ],
        base / "policy": ["train", f"data={data}", f"out={base}", f"steps={updates}", own],
        tuned / "policy": [
            "finetune",
            f"base={base}",
            f"demos={data}",
            "method=auto",
            f"env_steps={steps}",
            f"out={tuned}",
            own,
            f"resume={str(tuned.exists()).lower()}",
        ],
        out / "results.json": [
            "transfer",
            f"run={tuned}",
            f"out={out}",
            f"env={there}",
            "engines=mujoco,pybullet",
            f"episodes={episodes}",
            f"seed={1000 + seed}",
            "video=false",
        ],
    }
    for product, words in stages.items():
        if not product.exists():
            subprocess.run([sys.executable, "-m", "robo_rl", *words], check=True, stdout=subprocess.DEVNULL)
    rows: list[Row] = json.loads((out / "results.json").read_text())["rows"]
    return rows
