"""Train a quadcopter to hover through differentiable dynamics, and read its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robo_rl.apps.fly import main as fly
from robo_rl.conf.fly import FlyConfig
from robo_rl.core.files.durable import read_json


def main(out: Path, quick: bool = False) -> Any:
    small: dict[str, Any] = {"updates": 2, "flights": 4, "eval_episodes": 4, "eval_s": 0.2} if quick else {}
    fly(FlyConfig(task="hover", out=str(out / "hover"), video=False, eager=quick, **small))
    return read_json(out / "hover" / "results.json")


if __name__ == "__main__":
    main(Path("runs/examples"))
