"""Improve an imitated base by a residual: a small correction of its actions, learned by TD3.

PYTHONPATH=examples python examples/base_and_residual.py
"""

from __future__ import annotations

from pathlib import Path

from point_env import NAME, record

import robo_rl as rr


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
    )
    print(f"base {tuned.before}, {method} {tuned.rate}")
    return tuned


if __name__ == "__main__":
    main(Path("runs/examples/base_and_residual"))
