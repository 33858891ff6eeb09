"""Attack of the readers of CDR: the buses', the recordings' and those of services; rosbags is the oracle.

Broken promises: anything but a record or a BusError comes out; a payload takes over half a second; the memory
grows by more than 300 MB; a record differs from what rosbags reads in the same bytes; a bus or a recording
does not go on after a malformed message.
"""

from __future__ import annotations

import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from attacks.cdr_values import difference
from attacks.hostile_cdr import HostileCdr
from attacks.live_cdr import attack_bus, attack_recordings
from hardware.bus.dds.cdr import ros_types
from hardware.bus.dds.service import decode_head, decode_reply
from hardware.bus.wire import WIRE
from robo_rl.core.errors import BusError

SLOW_S, GROWTH_BYTES = 0.5, 300_000_000
WHOLE = 0.3  # share of payloads without a fault
GRAPH = "rmw_dds_common/msg/ParticipantEntitiesInfo"

JOG = """std_msgs/Header header
string[] joint_names
float64[] displacements
float64[] velocities
float64 duration
"""


class CdrAttack:
    """Payloads against the readers in this process."""

    def __init__(self, seed: int) -> None:
        self.rng, self.counts, self.example = random.Random(seed), Counter[str](), ""
        self.store: Any = get_typestore(Stores.ROS2_JAZZY)  # the oracle's own
        self.store.register(get_types_from_msg(JOG, "control_msgs/msg/JointJog"))
        self.made, self.types, self.read = HostileCdr(self.store, self.rng), ros_types("jazzy"), 0
        self.compared = 0

    def note(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        self.example = self.example or f"{kind}: {what}"

    def payload(self, ros_type: str) -> bytes:
        whole = self.made.whole(ros_type)
        return whole if self.rng.random() < WHOLE else self.made.spoilt(whole)

    def try_record(self, kind: type[Any]) -> None:
        """One payload of a record's type."""
        ros_type = WIRE[kind].ros_type
        data = self.payload(ros_type)
        found = self._guarded(kind.__name__, data, lambda: self.types.decode(data, kind))
        if found is None:
            return
        self.read += 1
        try:
            expected = self.store.deserialize_cdr(data, ros_type)
        except Exception:  # whatever the oracle does, it does not read this
            return
        self.compared += 1
        if differs := difference(found, expected):
            self.note(f"{kind.__name__} differs", f"{differs} in {data[:200].hex()}")

    def try_other(self) -> None:
        """One payload of the graph's announcements, or of a service."""
        data = self.payload(GRAPH)
        self._guarded("graph", data, lambda: self.types.parse(data, GRAPH))
        short = self.rng.randbytes(self.rng.randrange(60))
        self._guarded("request", short, lambda: decode_head(short))
        if len(short) >= 20:
            self._guarded("reply", short, lambda: decode_reply(short))

    def _guarded(self, what: str, data: bytes, read: Any) -> Any:
        """What `read` returns; None for a BusError or a broken promise."""
        begin_s, found = time.process_time(), None
        try:
            found = read()
        except BusError as refused:
            if len(str(refused)) < 20:
                self.note(f"{what} without a sentence", str(refused))
        except Exception as error:  # whatever else it is ends a node
            self.note(f"{what} raises {type(error).__name__}", f"{str(error)[:100]} for {data[:200].hex()}")
        if (took_s := time.process_time() - begin_s) > SLOW_S:
            self.note(f"{what} is slow", f"{took_s:.1f} s for {data[:200].hex()}")
        return found


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let an allocation fail that would take more than the bound."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with Path("/proc/self/statm").open() as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + GROWTH_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def attack(payloads: int, seed: int) -> tuple[int, Counter[str], str]:
    """(payloads tried, violations by kind, an example). Each 100th also passes a bus and a recording."""
    run, kinds = CdrAttack(seed), list(WIRE)
    with np.errstate(all="ignore"), _bounded_memory():
        for i in range(payloads):
            if i % (len(kinds) + 1) == len(kinds):
                run.try_other()
            else:
                run.try_record(kinds[i % (len(kinds) + 1)])
    if run.compared < 0.2 * payloads:
        run.note("oracle is blind", f"{run.compared} of {payloads} payloads were compared")
    live = max(len(kinds), payloads // 100)
    with TemporaryDirectory() as folder:
        for kind, what in (*attack_bus(run.made, live), *attack_recordings(run.made, live, Path(folder))):
            run.note(kind, what)
    return payloads + 2 * live, run.counts, run.example
