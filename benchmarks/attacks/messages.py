"""Attack of every node by hostile but valid messages on each topic that it subscribes to.

Broken promises: a callback or timer raises (the process of the node would end), takes more than a second, or
the node's memory grows by more than 500 MB; a command that is not finite goes out to a robot; and after a
reset the node does not do its work.
"""

from __future__ import annotations

import random
import resource
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from attacks.attacked_nodes import Attacked, attacked_nodes
from attacks.hostile_messages import Hostile
from attacks.lone_bus import LoneBus
from hardware.description import load_description

SLOW_S, GROWTH_KB = 1.0, 500_000
RESET = ("~/reset", "~/connect", "~/start", "~/arm")
_SAFE = ("command/safe", "flight/safe")


class Watch:
    """Violations of one node."""

    def __init__(self, name: str) -> None:
        self.name, self.counts, self.example, self.dead = name, Counter[str](), "", False

    def note(self, kind: str, what: str) -> None:
        self.counts[f"{self.name}: {kind}"] += 1
        self.example = self.example or f"{self.name}: {kind}, {what}"

    def run(self, act: Callable[[], object], what: str) -> None:
        """Call a callback of the node; note an exception or a long time."""
        begin_s = time.process_time()
        try:
            act()
        except Exception as error:  # whatever it is, it would end the node
            self.note("dies", f"{what}: {type(error).__name__}: {str(error)[:200]}")
            self.dead = True
        if (took_s := time.process_time() - begin_s) > SLOW_S:
            self.note("slow", f"{took_s:.1f} s for {what}")

    def on_sent(self, topic: str, message: Any) -> None:
        if topic in _SAFE:
            values = message.values if topic == "flight/safe" else message.position_rad
            if not np.isfinite(values).all():
                self.note("commands what is not finite", str(values)[:100])


def _largest_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def attack_node(name: str, attacked: Attacked, hostile: Hostile, count: int) -> Watch:
    """Send `count` hostile messages to a node, then ordinary ones; a dead node is made anew."""
    watch, rng = Watch(name), hostile.rng
    bus, before_kb = LoneBus(name.split()[0]), _largest_kb()
    bus.on_sent = watch.on_sent
    node = attacked.make(bus)
    for i in range(count):
        topic = rng.choice(list(bus.heard))
        message = hostile.of(bus.heard[topic][0])
        watch.run(lambda: bus.say(topic, message), f"{topic} {str(message)[:300]}")  # noqa: B023
        if rng.random() < 0.05 and bus.services:
            service = rng.choice(list(bus.services))
            watch.run(bus.services[service], service)
        for usual, ordinary in attacked.usual(bus.now(), i) if rng.random() < 0.3 else ():
            watch.run(lambda: bus.say(usual, ordinary), f"{usual}, after a hostile message")  # noqa: B023
        watch.run(lambda: bus.advance(rng.choice((0.0, 0.001, 0.01, 0.02))), f"a timer after {topic}")  # noqa: B023
        if watch.dead:
            node.finish()
            bus = LoneBus(name.split()[0])
            bus.on_sent = watch.on_sent
            _forget(node)
            node, watch.dead = attacked.make(bus), False
    if (growth_kb := _largest_kb() - before_kb) > GROWTH_KB:
        watch.note("fills the memory", f"{growth_kb / 1e6:.1f} GB")
    _check_recovery(watch, attacked, bus)
    watch.run(lambda: node.stop("the attack ends"), "stop")
    watch.run(node.finish, "finish")
    _forget(node)
    return watch


def _check_recovery(watch: Watch, attacked: Attacked, bus: LoneBus) -> None:
    """Note a node that does not do its work after the attack has ended and it was reset."""
    watch.run(lambda: bus.advance(5.0), "a timer after the attack")
    for again in range(200):
        for topic, message in attacked.usual(bus.now(), again):
            watch.run(lambda: bus.say(topic, message), f"{topic}, after the attack")  # noqa: B023
        if again in (1, 50):
            for service in RESET:
                if service in bus.services:
                    watch.run(bus.services[service], service)
            bus.sent.clear()
        watch.run(lambda: bus.advance(0.01), "a timer after the attack")
    if not bus.sent[attacked.work]:
        watch.note("deaf", f"nothing on {attacked.work} after a reset and ordinary messages")


def _forget(node: Any) -> None:
    """Release the folder of a recorder, as the end of its process does."""
    lock = getattr(node, "_lock", None)
    if lock is not None:
        lock.close()


def attack(tries: int, seed: int) -> tuple[int, Counter[str], str]:
    """(messages sent, violations by node and kind, one example). tries: messages per node."""
    names, counts, example, sent = load_description("sim_arm").names, Counter[str](), "", 0
    with TemporaryDirectory() as folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, attacked in attacked_nodes(Path(folder)).items():
            watch = attack_node(name, attacked, Hostile(random.Random(seed), names), tries)
            counts, example, sent = counts + watch.counts, example or watch.example, sent + tries
    return sent, counts, example
