"""`robo-rl fly`: train a flight policy, measure it, film it, and export it as a bundle and as C."""

from __future__ import annotations

import torch

from robo_rl.conf.fly import FlyConfig
from robo_rl.flight.fly.report import next_steps, write_outputs
from robo_rl.flight.fly.runs import (
    SharedStarts,
    fly_controllers,
    fly_setup,
    start_run,
    train_all,
)
from robo_rl.flight.fly.setup import check_own
from robo_rl.flight.fly.table import print_table
from robo_rl.flight.rows import FlyRow


def main(config: FlyConfig) -> int:
    """Train `seeds` policies, compare them with classical controllers, and write plots, bundle and C code."""
    torch.set_num_threads(1)
    check_own(config)
    config, setting = fly_setup(config)
    with start_run(config) as run:
        rows, trials = train_all(config, setting, run)
        controllers = fly_controllers(SharedStarts.of(config, setting))
        rows += [FlyRow.of(name, trial) for name, trial in controllers.items()]
        print_table(config, rows)  # first: a full disk costs no measurement
        print(write_outputs(config, setting, run, rows, trials | controllers))
        print(next_steps(config, success=float(trials["policy"].held.float().mean())))
    return 0
