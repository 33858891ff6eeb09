"""Train a quadcopter to hover through differentiable dynamics, and read its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robo_rl.apps.fly import main as fly
from robo_rl.conf.fly import FlyConfig
from robo_rl.core.files.durable import read_json


def main(out: Path, quick: bool = False) -> Any:
    config = FlyConfig(task="hover", out=str(out / "hover"), video=False, eager=quick)
    if quick:
        config.updates, config.flights, config.eval_flights, config.eval_s = 2, 4, 4, 0.2
    fly(config)
    return read_json(out / "hover" / "results.json")


if __name__ == "__main__":
    main(Path("runs/examples"))
