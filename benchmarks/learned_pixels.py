"""SAC from pictures with an encoder that learns: success on a reaching task, and the memory of its replay.

    python benchmarks/learned_pixels.py --seeds 3 --runs runs/learned-pixels

A Panda arm moves its tool to a ball that only two cameras of 24 x 24 pixels show. One seed is a run of
`robo-rl finetune`, from scratch. Finished runs of --runs are not repeated, and interrupted ones continue.
`start` is the success of random actions, in the first evaluation.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
from pathlib import Path
from typing import Any

import torch
from common import emit, own_folder, parser, verb

from robo_rl.core.files.durable import read_json
from robo_rl.data.frames import FrameRing
from robo_rl.data.replay import Replay
from robo_rl.eval.stats import SuccessRate

ENV = "arm/reach:cameras=view+front,state=body,image_size=24,radius_m=0.05"
SETTINGS = (
    "method.encoder=learned", "method.shift_px=1", "method.image.widths=[8,16]", "method.image.features=24",
    "method.image.keypoints=12", "method.utd=0.5", "method.learner.batch=48",
    "method.learner.hidden=[128,128]", "method.learner.layer_norm=true", "method.learner.tau=0.02",
    "method.learner.gamma=0.9", "method.learner.alpha=0.05", "method.learner.n_step=3",
    "method.learner.lr_actor=1e-3", "method.learner.lr_critic=1e-3",
)  # fmt: skip
CAMERAS = {"image.view": (84, 84, 3), "image.front": (84, 84, 3)}  # of the memory's comparison
HISTORY, DECISIONS, STATES = 2, 1000, 10


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3, help="number of seeds")
    options.add_argument("--runs", type=Path, help="folder of runs; an interrupted one continues")
    args = options.parse_args()
    torch.set_num_threads(1)
    report_memory()
    with tempfile.TemporaryDirectory() as temporary:
        folder = own_folder(args.runs) if args.runs else Path(temporary)
        for seed in range(1 if args.quick else args.seeds):
            run_seed(seed, folder / f"sac-{seed}", quick=args.quick)


def report_memory() -> None:
    """Bytes of a stored decision: with a ring of frames, and with stacked pictures in both observations."""
    ring = FrameRing(DECISIONS, 1, CAMERAS, HISTORY)
    widths = {"obs": STATES, "next_obs": STATES, "critic_action": 3, "action": 3, "ctx": 3, "next_ctx": 3}
    store = Replay(DECISIONS, 1, widths, frames=ring)
    windows = sum(window.nbytes for window in ring.windows(ring.head, ring.head).values())
    sizes = {
        "ring": size_of(store) + sum(table.nbytes for table in [*ring.data.values(), ring.age]),
        "stacked": size_of(Replay(DECISIONS, 1, widths)) + DECISIONS * 2 * windows,
    }
    for name, size in sizes.items():
        value = round(size / DECISIONS)
        emit(f"pixels/replay/{name}_bytes", value, "bytes/decision", cameras=2, size=84, history=HISTORY)


def size_of(store: Replay) -> int:
    """Bytes of the columns of a replay, without pictures."""
    return sum(column.nbytes for column in store.data.values())


def run_seed(seed: int, out: Path, *, quick: bool) -> None:
    """One run, and its figures."""
    if not (out / "results.json").exists():
        base_steps, steps = (60, 120) if quick else (600, 6000)
        verb(
            "finetune", *SETTINGS, env=ENV, method="sac", reward="dense", env_steps=steps, seed=seed, out=out,
            eval_every=0 if quick else 2000, eval_episodes=2 if quick else 10,
            final_episodes=2 if quick else 50, checkpoint_every=2000, resume=(out / "run.json").exists(),
            **{"method.base_steps": base_steps},
        )  # fmt: skip
    results: dict[str, Any] = read_json(out / "results.json")
    curve, prefix = results["curve"], "pixels/reach/sac_learned"
    final, start = (SuccessRate(*each) for each in (count_of(results), curve["rates"][0]))
    emit(f"{prefix}/success", final.rate, "fraction", seed=seed, start=start.rate, **final.to_json())
    emit(f"{prefix}/env_steps", results["env_steps"], "steps", seed=seed)
    emit(f"{prefix}/cpu_s", round(curve["train_cpu_s"], 1), "cpu-s", seed=seed)


def count_of(results: dict[str, Any]) -> tuple[int, int]:
    """(successes, episodes) of the final evaluation."""
    rate = results["policy"]["rate"]
    return rate["k"], rate["n"]


if __name__ == "__main__":
    main()
