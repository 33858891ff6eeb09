"""Imitate demonstrations in a Gymnasium environment of your own.

    PYTHONPATH=examples python examples/own_gym_env.py

On the command line the same environment is `env=gym/point_env:Point-v0`.
"""

from __future__ import annotations

from pathlib import Path

from point_env import NAME, record

import robo_rl as rr


def main(out: Path, quick: bool = False) -> rr.Evaluation:
    data = record(out / "data", episodes=4 if quick else 40)
    base = rr.train(data=data, out=out / "base", steps=20 if quick else 1500, chunk=4, execute=2)
    result = rr.evaluate(base.path, env=NAME, episodes=4 if quick else 100, num_envs=4, num_workers=0)
    print(f"success {result.rate}")
    return result


if __name__ == "__main__":
    main(Path("runs/examples/own_gym_env"))
