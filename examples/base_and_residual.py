"""Improve an imitated base by a residual: a correction of its actions, learned by TD3.

PYTHONPATH=examples python examples/base_and_residual.py

Seeds 0, 1, 2 gave 43, 39, 41 of 100 for the base and 75, 79, 78 for the residual, in 60 CPU-seconds each.
"""

from __future__ import annotations

from pathlib import Path

from point_env import NAME, record

import robo_rl as rr

RESIDUAL = {"method.map.scale": 1.0}  # half the range of the actions: this base is off by more than a little


def main(out: Path, quick: bool = False, method: str = "residual") -> rr.Run:
    data = record(out / "data", episodes=3 if quick else 5, noise=0.5)  # few and noisy: room to improve
    base = rr.train(data=data, out=out / "base", steps=10 if quick else 300, chunk=4, execute=2)
    small = {"method.base_steps": 20, "method.burn_in": 2} if quick else {"method.base_steps": 500}
    tuned = rr.finetune(
        base=base.path,
        out=out / method,
        env=NAME,
        demos=data,
        method=method,
        env_steps=60 if quick else 6000,
        eval_every=0,
        eval_episodes=4 if quick else 50,
        final_episodes=4 if quick else 100,
        **small,
        **(RESIDUAL if method == "residual" else {}),
    )
    print(f"base {tuned.before}, {method} {tuned.rate}")
    return tuned


if __name__ == "__main__":
    main(Path("runs/examples/base_and_residual"))
