"""Run by test_distill_kill.py: distil in the toy world, and die by SIGKILL after an update.

python die_in_distill.py <teacher> <run> <update>
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from robo_rl.apps import distill
from robo_rl.apps.tuning.distill_rounds import Rounds
from tests.apps.tuning.test_distill_kill import config
from tests.rl.worlds import make_env


def main(teacher: Path, run: Path, last: int) -> None:
    real = Rounds.update

    def update(rounds: Rounds, *args: Any) -> None:
        real(rounds, *args)
        if rounds.updates == last:
            os.kill(os.getpid(), signal.SIGKILL)

    Rounds.update = update  # type: ignore[method-assign]  # in this process alone
    distill.make_env = lambda name, lanes, *_, **__: make_env(lanes)  # type: ignore[assignment]  # the toy world
    distill.main(config(teacher, run))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
