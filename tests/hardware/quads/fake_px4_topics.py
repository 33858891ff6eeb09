"""A PX4 behind its DDS bridge, as a process: px4_msgs over real DDS on loopback, and a craft that flies in
NED/FRD.

    python -m tests.hardware.quads.fake_px4_topics [status topic]

Orders on stdin: pilot, disarm, mute, frame, die. Messages are made and read by cyclonedds' own serializer,
not by ours.
"""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
from typing import Any

import numpy as np
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds import types as dds_types
from hardware.bus.dds.cdr import ros_types
from hardware.bus.names import domain_id
from hardware.quads.px4.types import COMMAND, ODOMETRY, OFFBOARD_MODE, RATES, STATUS, register
from tests.hardware.quads.fake_px4 import Craft
from tests.hardware.safety.turns import quaternion

OLD = "vehicle_status_of_1.14"  # the argument that makes it a PX4 1.14
POSITION, OFFBOARD, LAND = 2, 14, 18  # nav_state
LOSS_S, RATE_S = 0.5, 0.01


class Autopilot:
    def __init__(self, status: str) -> None:
        dds_types.join_domain(domain_id(None), dds_types.LOOPBACK)
        self.participant, ros = DomainParticipant(domain_id(None)), ros_types()
        register(ros.store)
        self.rest = bytes(29 if status == OLD else 38)  # of a status of 71 bytes, and of one of 80
        self.kinds = {
            kind: dds_types.struct(ros, kind) for kind in (COMMAND, ODOMETRY, OFFBOARD_MODE, RATES, STATUS)
        }
        offers, asks = dds_types.endpoint_qos(False, True, 1), dds_types.endpoint_qos(False, False, 8)
        self.odometry = DataWriter(self.participant, self.topic("out/vehicle_odometry", ODOMETRY), offers)
        self.status = DataWriter(
            self.participant, self.topic(f"out/{status.removesuffix('_of_1.14')}", STATUS), offers
        )
        names = {
            "offboard_control_mode": OFFBOARD_MODE,
            "vehicle_rates_setpoint": RATES,
            "vehicle_command": COMMAND,
        }
        self.readers = {
            name: DataReader(self.participant, self.topic(f"in/{name}", kind), asks)
            for name, kind in names.items()
        }
        self.craft, self.mode, self.armed, self.mute, self.frame = Craft(0.0), POSITION, False, False, 1
        self.beats: list[float] = []
        self.setpoint: Any = None

    def topic(self, name: str, kind: str) -> Topic:
        return Topic(self.participant, f"rt/fmu/{name}", self.kinds[kind], Qos(dds_types.PLAIN))

    def tell(self, event: str, **more: object) -> None:
        print(json.dumps({"event": event, "t": time.monotonic(), **more}), flush=True)

    def enter(self, mode: int, why: str) -> None:
        if mode != self.mode:
            self.mode = mode
            self.tell("mode", mode=mode, why=why)

    def newest(self, name: str) -> list[Any]:
        """The newest sample; a driver that leaves produces samples without values."""
        return [sample for sample in self.readers[name].take(8) if sample.sample_info.valid_data]

    def take(self, now: float) -> None:
        for beat in self.newest("offboard_control_mode"):
            flags = (beat.position, beat.velocity, beat.acceleration, beat.attitude, beat.body_rate)
            assert flags == (False, False, False, False, True)
            self.beats = [*self.beats[-200:], now]
        self.setpoint = [self.setpoint, *self.newest("vehicle_rates_setpoint")][-1]
        for command in self.newest("vehicle_command"):
            assert (command.target_system, command.from_external) == (1, True)
            if command.command == 400:
                off = command.param1 == 0.0 and command.param2 == 21196.0  # in the air only with this number
                self.armed = not off and (self.armed or command.param1 == 1.0)
                self.tell("disarmed" if off else "arming", height=-self.craft.pos[2])
            elif command.command == 176 and (command.param2, command.param3) == (6.0, 0.0):
                begun = [t for t in self.beats if t > now - 1.2]
                ready = len(begun) > 2 and begun[0] < now - 0.9
                if ready:
                    self.enter(OFFBOARD, "command")
                else:
                    self.tell("rejected")
            elif command.command == 176 and (command.param2, command.param3) == (4.0, 6.0):
                self.enter(LAND, "command")

    def send(self, now: float) -> None:
        us, c, zero = int(now * 1e6), self.craft, [0.0] * 3
        self.odometry.write(
            self.kinds[ODOMETRY](
                timestamp=us,
                timestamp_sample=us,
                pose_frame=self.frame,
                position=c.pos.tolist(),
                q=list(quaternion(c.r)),
                velocity_frame=1,
                velocity=c.vel.tolist(),
                angular_velocity=c.rates.tolist(),
                position_variance=zero,
                orientation_variance=zero,
                velocity_variance=zero,
                reset_counter=0,
                quality=0,
            )
        )
        status = self.kinds[STATUS](
            timestamp=us, armed_time=0, takeoff_time=0, arming_state=2 if self.armed else 1,
            latest_arming_reason=0, latest_disarming_reason=0, nav_state_timestamp=us,
            nav_state_user_intention=self.mode, nav_state=self.mode,
        )  # fmt: skip
        # What stands behind the common fields is not read.
        dds_types.write(self.status, status.serialize(use_version_2=False) + self.rest)

    def fly(self, dt: float) -> None:
        s = self.setpoint
        if self.mode == LAND:
            self.craft.go_to(np.array([*self.craft.pos[:2], min(0.0, self.craft.pos[2] + 0.5)]), None, dt)
            self.armed &= bool(self.craft.pos[2] < -0.02)
        elif self.mode == OFFBOARD and self.armed and s is not None:
            self.craft.fly(np.array([s.roll, s.pitch, s.yaw]), -s.thrust_body[2], dt)

    def run(self) -> None:
        last = note = time.monotonic()
        self.tell("ready")
        while True:
            now = time.monotonic()
            dt, last = min(0.02, now - last), now
            self.take(now)
            if self.mode == OFFBOARD and now - self.beats[-1] > LOSS_S:
                self.enter(LAND, "failsafe")
            self.fly(dt)
            if not self.mute:
                self.send(now)
            if now - note > 0.05:
                note, nose = now, self.craft.r[:, 0]
                heading = math.degrees(math.atan2(nose[1], nose[0]))
                self.tell("pose", ned=self.craft.pos.tolist(), heading_deg=heading)
            if select.select([sys.stdin], [], [], RATE_S)[0]:
                word = sys.stdin.readline().strip()
                if word in ("", "die"):
                    os._exit(0)
                self.armed &= word != "disarm"  # by a ground station
                if word == "pilot":
                    self.enter(POSITION, "pilot")
                self.mute |= word == "mute"
                self.frame = 2 if word == "frame" else self.frame


if __name__ == "__main__":
    Autopilot(sys.argv[1] if len(sys.argv) > 1 else "vehicle_status_v1").run()
