"""Attacks with generators and oracles of their own: `python benchmarks/attack.py --part power`.

Each part prints how much was tried and how many promises were broken; one broken promise ends with exit
status 1.

    arm       the safety filter of an arm: hostile commands and states; no output may exceed a limit
    cdr       malformed messages on the bus and in recordings: a sentence or a record, never a crash
    flight    the safety filter of a quadcopter: hostile states, commands, envelopes, clocks
    import    datasets and replay buffers that lie: a sentence or a result, no code is run
    messages  hostile but valid messages on every topic of every node: none may end or deafen a node
    power     power losses while episodes are recorded, in simulation: no committed episode may be lost
    processes SIGKILLs of policy, head, filter, robot and launcher of a running `robo-rl up arm_sim`
    recorder  SIGKILLs, SIGTERMs and full disks (mounted, as root) of a recorder that hears DDS messages
    store     SIGKILLs and full disks (mounted, as root) while episodes are recorded: no commit is lost
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from common import emit, parser

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # generators and oracles of tests/

from attacks import arm, cdr, data_files, flight, messages, power, processes, recorder, store

# part -> (attack(tries, seed) -> (tried, violations by kind, an example), tries, tries of a quick run)
PARTS: dict[str, tuple[Callable[[int, int], tuple[int, Counter[str], str]], int, int]] = {
    "arm": (arm.attack, 100_000, 5_000),
    "cdr": (cdr.attack, 300_000, 10_000),
    "flight": (flight.attack, 100_000, 5_000),
    "import": (data_files.attack, 1000, 100),
    "messages": (messages.attack, 5000, 300),
    "power": (power.attack, 1000, 100),
    "processes": (processes.attack, 50, 5),
    "recorder": (recorder.attack, 240, 8),
    "store": (store.attack, 300, 30),
}


def main() -> int:
    """Exit status: 0 when every promise was kept."""
    options = parser(__doc__ or "")
    options.add_argument("--part", choices=sorted(PARTS), required=True, help="what is attacked")
    options.add_argument("--tries", type=int, help="number of tries, where the part's own is not wanted")
    options.add_argument("--seed", type=int, default=0, help="seed of the generator")
    args = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # an attack ends what it started
    attack, tries, quick_tries = PARTS[args.part]
    tried, counts, example = attack(args.tries or (quick_tries if args.quick else tries), args.seed)
    emit(f"attack/{args.part}/tried", tried, "tries", seed=args.seed)
    load = [round(value, 1) for value in os.getloadavg()]  # over 1, 5 and 15 minutes
    emit(
        f"attack/{args.part}/violations",
        counts.total(),
        "violations",
        seed=args.seed,
        kinds=dict(counts),
        load=load,
    )
    if example:
        print(f"For example: {example}", file=sys.stderr)
    return int(counts.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
