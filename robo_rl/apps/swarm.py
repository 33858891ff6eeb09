"""`robo-rl swarm`: train one policy for every drone of a swarm among obstacles; measure, draw and export
it.
"""

from __future__ import annotations

import torch

from robo_rl.conf.swarm import SwarmConfig
from robo_rl.flight.own_files import with_checksums
from robo_rl.flight.swarm.report import print_table, write_outputs
from robo_rl.flight.swarm.runs import start_run, train_all
from robo_rl.flight.swarm.setting import SwarmSetting


def main(config: SwarmConfig) -> int:
    """Train `seeds` policies, measure each in the same unseen worlds, and write table, plots and bundle."""
    torch.set_num_threads(1)
    config = with_checksums(config)
    setting = SwarmSetting.of(config)
    with start_run(config) as run:
        rows, paths = train_all(config, setting, run)
        print_table(config, rows)  # first: a full disk costs no measurement
        print(write_outputs(config, setting, run, rows, paths))
    return 0
