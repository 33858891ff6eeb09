"""Fine-tuning from two cameras and the robot's own state: success, steps and CPU time of each method.

    python benchmarks/pixels.py --only peg-insert-side --seeds 3 --runs runs/pixels

One seed is a run of the verbs, as a user types them: collect 25 demonstrations (the same for all seeds),
train a flow policy with one image encoder a camera, fine-tune it with its encoders frozen. Finished verbs of
--runs are not repeated, and interrupted ones continue. Success is that of 50 episodes which no method has
seen, the same for base and fine-tuned policy.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from common import cpu_seconds, emit, own_folder, parser, verb

from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.stats import SuccessRate
from sim.registry import make_env

METHODS = ("steering", "residual")
COST_FILE = "cpu_s.json"


@dataclass(frozen=True)
class PixelTask:
    """An environment with two cameras, and the length of its runs."""

    env: str
    noise: float  # of the demonstrations
    updates: int = 3000
    env_steps: int = 12_000


TASKS = {
    "peg-insert-side": PixelTask(
        "metaworld/peg-insert-side-v3:cameras=corner3+gripperPOV,state=robot", noise=0.1
    ),
    "lift": PixelTask("arm/lift:cameras=view+front,state=robot", noise=0.3),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--only", choices=list(TASKS), help="one task; all by default")
    options.add_argument("--methods", default="+".join(METHODS), help="methods of fine-tuning, joined by +")
    options.add_argument("--seeds", type=int, default=3, help="number of seeds")
    options.add_argument("--env-steps", type=int, help="of each fine-tuning, if not the task's own")
    options.add_argument("--runs", type=Path, help="folder of data and runs; an interrupted one continues")
    args = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = own_folder(args.runs) if args.runs else Path(temporary)
        for name in [args.only] if args.only else ["peg-insert-side"] if args.quick else list(TASKS):
            task = TASKS[name]
            task = replace(task, env_steps=args.env_steps) if args.env_steps else task
            emit(f"pixels/{name}/render_ms", round(render_ms(task.env), 2), "cpu-ms/env-step", cameras=2)
            for seed in range(1 if args.quick else args.seeds):
                run_seed(name, task, seed, args.methods.split("+"), folder / name, quick=args.quick)


def render_ms(env_name: str, steps: int = 60) -> float:
    """CPU time of both pictures: that of a step with cameras, less that of a step without [ms]."""
    times = []
    for name in (env_name, env_name.partition(":")[0]):
        with closing(make_env(name, 1)) as env:
            env.reset(EpisodeSeeds(("pixels", 0)))
            action = torch.zeros(1, env.spec.action.dim)
            env.step(action)
            start_s = cpu_seconds()
            for _ in range(steps):
                env.step(action)
            times.append(cpu_seconds() - start_s)
    return float(1e3 * (times[0] - times[1]) / steps)


def run_seed(name: str, task: PixelTask, seed: int, methods: list[str], folder: Path, *, quick: bool) -> None:
    """Run the verbs of one seed and print its figures."""
    demos, base = folder / "demos", folder / f"base-{seed}"
    count, short = (2, "max_episode_steps=150") if quick else (25, None)
    measured("collect", demos, env=task.env, episodes=count, noise=task.noise, num_envs=5)
    updates = 20 if quick else task.updates
    network = ["image.widths=[16,32,64]", "threads=1"]
    measured("train", base, *network, data=demos, steps=updates, batch_size=64, seed=seed, resume=True)
    for method in methods:
        out = folder / f"{method}-{seed}"
        words = [f"demos={demos}"] if method == "residual" else []
        words += [short] if short else []
        steps = 120 if quick else task.env_steps
        words += ["method.base_steps=80"] if quick else []
        measured(
            "finetune", out, *words, base=base, method=method, env_steps=steps, seed=seed, eval_every=0,
            eval_episodes=2 if quick else 20, final_episodes=2 if quick else 50, resume=True,
        )  # fmt: skip
        report(name, method, seed, out, base)


def measured(name: str, out: Path, *words: str, **settings: Any) -> None:
    """Run a verb unless it has finished, and keep its CPU time in its folder: that of this process, and of no
    earlier interrupted one.
    """
    note = out / COST_FILE
    if note.exists():
        return
    start_s = cpu_seconds()
    if settings.get("resume") and not (out / "run.json").exists():
        settings = settings | {"resume": False}
    verb(name, *words, out=out, **settings)
    write_json(note, {"cpu_s": cpu_seconds() - start_s})


def report(name: str, method: str, seed: int, out: Path, base: Path) -> None:
    """Print success of the fine-tuned policy beside its base, steps and CPU time."""
    results = read_json(out / "results.json")
    after, before = (
        SuccessRate(results[who]["rate"]["k"], results[who]["rate"]["n"]) for who in ("policy", "base")
    )
    own, trained = (read_json(folder / COST_FILE)["cpu_s"] for folder in (out, base))
    prefix = f"pixels/{name}/{method}"
    emit(f"{prefix}/success", after.rate, "fraction", seed=seed, base=before.rate, **after.to_json())
    emit(f"{prefix}/env_steps", results["env_steps"], "steps", seed=seed)
    emit(f"{prefix}/cpu_s", round(own, 1), "cpu-s", seed=seed, base_cpu_s=round(trained, 1))


if __name__ == "__main__":
    main()
