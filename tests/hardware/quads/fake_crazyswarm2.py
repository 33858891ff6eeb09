"""crazyswarm2's server with one Crazyflie, as a process: its topics and services over real DDS on loopback.

    python -m tests.hardware.quads.fake_crazyswarm2 [cpp|cflib]

The craft is that of `fake_crazyflie`, told in the firmware's packets. Orders on stdin: mute, disarm, tumble,
frame, short, die. Messages are made and read by cyclonedds' own serializer. Signs: crazyflie_server.cpp,
crazyflie_server.py, cflib.
"""

from __future__ import annotations

import json
import math
import os
import select
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds import types as dds_types
from hardware.bus.dds.calls import register_service, request_and_response
from hardware.bus.dds.cdr import ros_types
from hardware.bus.dds.service import Endpoints
from hardware.bus.names import domain_id
from hardware.quads.crazyswarm2.types import (
    ARM,
    COMMAND,
    LAND,
    LOG,
    NOTIFY,
    POSE,
    SET_PARAMETERS,
    STATUS,
    register,
)
from tests.hardware.quads.fake_crazyflie import COMMANDER, DT, GENERIC, HIGH_LEVEL, SUPERVISOR, Crazyflie
from tests.hardware.safety.turns import quaternion

NAME, LOG_S, STATUS_S, MOST = "cf231", 0.01, 0.1, 60000
ADD_LOGGING = "crazyflie_interfaces/srv/AddLogging"
RATES = ("vx", "vy", "vz", "rateRoll", "ratePitch", "rateYaw")


class Server:
    def __init__(self, backend: str) -> None:
        dds_types.join_domain(domain_id(None), dds_types.LOOPBACK)
        self.participant, self.ros, self.backend = DomainParticipant(domain_id(None)), ros_types(), backend
        register(self.ros)
        self.craft, self.frame, self.values, self.mute = Crazyflie({}), "world", 6, False
        self.kinds: dict[str, Any] = {}
        offers, asks = dds_types.endpoint_qos(True, False, 10), dds_types.endpoint_qos(True, False, 1)
        self.writers = {
            kind: DataWriter(self.participant, self.topic(name, kind), offers)
            for name, kind in (("pose", POSE), ("robo_rl", LOG), ("status", STATUS))
        }
        self.commands = DataReader(self.participant, self.topic("cmd_vel_legacy", COMMAND), asks)
        self.services: list[tuple[Endpoints, str, Callable[[Any], dict[str, Any]]]] = []
        self.serve(f"/{NAME}/arm", ARM, self.arm)
        self.serve(f"/{NAME}/land", LAND, self.land)
        self.serve(f"/{NAME}/notify_setpoints_stop", NOTIFY, self.notify)
        self.serve("/crazyflie_server/set_parameters", SET_PARAMETERS, self.set_parameters)
        if backend == "cflib":
            register_service(self.ros, ADD_LOGGING)
            self.serve(f"/{NAME}/add_logging", ADD_LOGGING, lambda _: {})

    def kind(self, ros_type: str) -> Any:
        if ros_type not in self.kinds:
            self.kinds[ros_type] = dds_types.struct(self.ros, ros_type)
        return self.kinds[ros_type]

    def topic(self, name: str, ros_type: str) -> Topic:
        return Topic(self.participant, f"rt/{NAME}/{name}", self.kind(ros_type), Qos(dds_types.PLAIN))

    def serve(self, name: str, ros_type: str, callback: Callable[[Any], dict[str, Any]]) -> None:
        both = {
            known: dds_types.struct(self.ros, known, announced)
            for announced, known in request_and_response(ros_type).items()
        }
        self.kinds |= both
        ends = Endpoints(self.participant, name, True, *both.values())
        self.services.append((ends, list(both)[1], callback))

    def made(self, ros_type: str, **fields: Any) -> Any:
        """A message of cyclonedds' class; missing fields are zero or empty."""
        values = {}
        for name, (described, of) in self.ros.store.fielddefs[ros_type][1]:
            if described.name == "NAME":
                values[name] = fields.get(name) or self.made(of)
            elif described.name == "BASE":
                values[name] = fields.get(name, "" if of[0] == "string" else 0)
            else:
                values[name] = fields.get(name, [])
        return self.kind(ros_type)(**values)

    def arm(self, request: Any) -> dict[str, Any]:
        self.craft.packet(SUPERVISOR, 1, bytes([1, request.arm]))
        return {}

    def land(self, request: Any) -> dict[str, Any]:
        duration = request.duration.sec + request.duration.nanosec / 1e9
        self.craft.command(
            HIGH_LEVEL, 0, struct.pack("<BBff?f", 8, request.group_mask, request.height, 0, 1, duration)
        )
        return {}

    def notify(self, request: Any) -> dict[str, Any]:
        self.craft.command(GENERIC, 1, struct.pack("<BI", 0, request.remain_valid_millisecs))
        return {}

    def set_parameters(self, request: Any) -> dict[str, Any]:
        results = []
        for parameter in request.parameters:
            name = parameter.name.removeprefix(f"{NAME}.params.")
            good = name in self.craft.params and parameter.value.type == 2
            if good:
                self.craft.params[name] = parameter.value.integer_value
                self.craft.tell("param", name=name, value=parameter.value.integer_value)
            reason = "" if good else "not declared"
            results.append(
                self.made("rcl_interfaces/msg/SetParametersResult", successful=good, reason=reason)
            )
        return {"results": results}

    def command(self, twist: Any) -> None:
        """Both servers invert the pitch; cflib's commander inverts it once more."""
        pitch = -twist.linear.x
        wire = -pitch if self.backend == "cflib" else pitch
        thrust = int(min(max(twist.linear.z, 0.0), MOST))
        self.craft.packet(COMMANDER, 0, struct.pack("<fffH", twist.linear.y, wire, twist.angular.z, thrust))

    def answer(self) -> None:
        for ends, reply, callback in self.services:
            for request in ends.reader.take(8):
                if not request.sample_info.valid_data:
                    continue
                fields = callback(request)
                late = time.monotonic() + 0.1
                while not ends.writer.get_matched_subscriptions() and time.monotonic() < late:
                    time.sleep(0.001)
                head = {"client_guid": request.client_guid, "sequence": request.sequence}
                ends.writer.write(self.made(reply, **head, **fields))

    def log(self) -> None:
        w, x, y, z = quaternion(self.craft.r)
        place = self.made("geometry_msgs/msg/Point", **dict(zip("xyz", self.craft.pos.tolist(), strict=True)))
        turn = self.made("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)
        header = self.made("std_msgs/msg/Header", frame_id=self.frame)
        pose = self.made("geometry_msgs/msg/Pose", position=place, orientation=turn)
        self.writers[POSE].write(self.made(POSE, header=header, pose=pose))
        values = [float(self.craft.logged(f"stateEstimateZ.{name}")) for name in RATES][: self.values]
        header = self.made("std_msgs/msg/Header", frame_id="" if self.backend == "cflib" else self.frame)
        self.writers[LOG].write(self.made(LOG, header=header, values=values))

    def tell_status(self) -> None:
        header = self.made("std_msgs/msg/Header", frame_id=self.frame)
        self.writers[STATUS].write(
            self.made(STATUS, header=header, supervisor_info=self.craft.info(), battery_voltage=3.9)
        )

    def order(self, word: str) -> None:
        if word in ("die", ""):
            os._exit(0)
        self.mute |= word == "mute"
        self.craft.armed &= word != "disarm"  # by an operator
        self.craft.tumbled |= word == "tumble"
        self.frame = "map" if word == "frame" else self.frame
        self.values = 3 if word == "short" else self.values
        self.craft.tell("ordered")

    def run(self) -> None:
        craft = self.craft
        craft.tell("ready")
        due = logged = told = noted = time.monotonic()
        while True:
            if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                self.order(sys.stdin.readline().strip())
            for twist in self.commands.take(8):
                if twist.sample_info.valid_data:
                    self.command(twist)
            self.answer()
            if (now := time.monotonic()) < due:
                continue
            due = max(due + DT, now - DT)
            craft.step()
            if now - logged >= LOG_S and not self.mute:
                logged = max(logged + LOG_S, now - LOG_S)
                self.log()
            if now - told >= STATUS_S and not self.mute:
                told = now
                self.tell_status()
            if now - noted > 0.05:
                noted, nose = now, craft.r[:, 0]
                yaw = math.degrees(math.atan2(nose[1], nose[0]))
                print(
                    json.dumps({"event": "pose", "t": now, "enu": craft.pos.tolist(), "yaw_deg": yaw}),
                    flush=True,
                )


if __name__ == "__main__":
    Server(sys.argv[1] if len(sys.argv) > 1 else "cpp").run()
