"""Malformed payloads on a real DDS bus, and in recordings (MCAP) that are read back."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rosbags.rosbag2 import StoragePlugin, Writer

from attacks.hostile_cdr import HostileCdr
from hardware.bus.dds import types as dds_types
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import RosTypes, ros_types
from hardware.bus.protocol import Profile
from hardware.bus.wire import WIRE
from hardware.messages import Text
from hardware.recording.bag_reader import KINDS, Bag
from robo_rl.core.errors import DataError, RoboRLError

DOMAIN = 69  # unless ROS_DOMAIN_ID is set
FOUND_S, HEARD_S = 10.0, 20.0
Fault = tuple[str, str]
_PER_BAG = 100


def attack_bus(made: HostileCdr, count: int) -> Iterator[Fault]:
    """Send malformed payloads to a node with one subscription per type; a valid message must still arrive."""
    from cyclonedds.pub import DataWriter
    from cyclonedds.qos import Qos
    from cyclonedds.topic import Topic

    domain, heard = int(os.environ.get("ROS_DOMAIN_ID") or DOMAIN), list[str]()
    node, types, kinds = (
        DdsBus("attacked", domain=domain, warn=lambda sentence: None),
        ros_types("jazzy"),
        list(WIRE),
    )
    participant = dds_types.join(domain, dds_types.LOOPBACK)
    writers = []
    for i, kind in enumerate(kinds):
        node.subscribe(f"attacked_{i}", kind, Profile.SENSOR, lambda message, at: None)
        carrier = dds_types.carrier(types, WIRE[kind].ros_type)
        topic = Topic(participant, f"rt/attacked_{i}", carrier, Qos(dds_types.PLAIN))
        writers.append(DataWriter(participant, topic, dds_types.endpoint_qos(True, False, 100)))
    node.subscribe("ordinary", Text, Profile.LATCHED, lambda message, at: heard.append(message.text))
    say = node.publisher("ordinary", Text, Profile.LATCHED)
    _spin(node, lambda: all(writer.get_matched_subscriptions() for writer in writers), FOUND_S)
    try:
        for i in range(count):
            place = i % len(kinds)
            data = made.spoilt(made.whole(WIRE[kinds[place]].ros_type))
            try:
                dds_types.write(writers[place], data[:60_000])
            except dds_types.DDSException:
                continue  # the sender's own middleware refuses it
            if i % 5 == 0:  # as many as a sensor's queue holds
                say(Text(str(i)))
                _spin(node, lambda: str(i) in heard, HEARD_S)  # noqa: B023
                if str(i) not in heard:
                    yield "bus is deaf", f"after payload {i}"
                    return
    except Exception as error:  # whatever a callback or the bus raises ends the node
        yield f"bus raises {type(error).__name__}", str(error)[:200]
    finally:
        writers.clear()
        node.close()
        dds_types.leave_domain(domain)


def _spin(node: DdsBus, until: Any, timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    node.spin(lambda: until() or time.monotonic() > end_s)


def attack_recordings(made: HostileCdr, count: int, folder: Path) -> Iterator[Fault]:
    """Recordings with malformed messages: each message is a record or a DataError; then spoilt files."""
    types, names = ros_types("jazzy"), list(KINDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for begin in range(0, count, _PER_BAG):
            path = folder / str(begin)
            written = _write(path, made, names, min(_PER_BAG, count - begin))
            yield from _read(path, types, written)
            for file in path.glob("*.mcap"):
                data = file.read_bytes()
                for _ in range(10):
                    file.write_bytes(made.spoilt(data))
                    yield from _read(path, types, None)


def _write(path: Path, made: HostileCdr, names: list[str], count: int) -> int:
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topics = [
            writer.add_connection(f"/topic_{i}", name, typestore=made.store) for i, name in enumerate(names)
        ]
        for i in range(count):
            data = made.whole(names[i % len(names)])
            writer.write(topics[i % len(names)], 1_000_000_000 + i, made.spoilt(data) if i % 3 else data)
    return count


def _read(path: Path, types: RosTypes, written: int | None) -> Iterator[Fault]:
    """written: number of messages that have to come, where the file itself is whole."""
    came = 0
    try:
        bag = Bag(path, types)
    except DataError:
        if written is not None:
            yield "recording lost", "a whole file is not read"
        return
    except Exception as error:  # whatever else ends the program
        yield f"recording raises {type(error).__name__}", f"opening: {str(error)[:200]}"
        return
    try:
        for topic, _, cdr in bag.raw(bag.names):
            came += 1
            try:
                bag.decode(topic, cdr)
            except DataError:
                continue
    except RoboRLError:
        pass
    except Exception as error:  # whatever else ends the program
        yield f"recording raises {type(error).__name__}", f"reading: {str(error)[:200]}"
    finally:
        bag.close()
    if written is not None and came != written:
        yield "recording lost", f"{came} of {written} messages came"
