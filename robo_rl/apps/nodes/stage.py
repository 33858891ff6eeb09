"""A verb in a process of its own that the demo looks after: `python -m robo_rl.apps.nodes.stage <keeper>
<verb> <words>`.

However the demo ends, by `kill -9` as well, the verb is asked to stop, and saves what it has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO, Any

from robo_rl.apps.cli import main as cli
from robo_rl.apps.nodes.parent_death_signal import stop_with_parent

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def begin(words: list[str], log: IO[Any]) -> subprocess.Popen[bytes]:
    """Start `robo-rl <words>` with one thread, what it says in `log`.

    In a session of its own: the terminal's Ctrl-C would be its first signal and the demo's its second, and
    the second means at once, without a checkpoint.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "robo_rl.apps.nodes.stage", str(os.getpid()), *words],
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=os.environ | ONE_THREAD,
        start_new_session=True,
    )  # fmt: skip


if __name__ == "__main__":
    stop_with_parent(int(sys.argv[1]))
    sys.exit(cli.main(sys.argv[2:]))
