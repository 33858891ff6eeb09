"""Craft with a camera, flight filter and velocity policy, in virtual time; inference is scripted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from hardware.bus.in_process import InProcessWorld
from hardware.messages import Diagnostics, FlightCommand, Text
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.shared.pictures import PictureSettings
from hardware.nodes.sim_cameras import SimCameras
from hardware.nodes.sim_robot import SimQuadNode
from hardware.nodes.velocity_policy import VelocityPolicyNode
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import RatesLander
from hardware.topics import FLIGHT_RAW, POLICY_STATUS, TASK
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.quads.hover_cell import HOVER, SimulatedQuad
from robo_rl.apps.nodes.quads.seek_cell import FrontCamera
from robo_rl.apps.nodes.quads.velocity_loop import make_robot_loop
from sim.flight.robot import QuadBody
from sim.flight.seek.body import SeekRoom
from sim.flight.seek.task import ENVELOPE, SeekScene
from sim.flight.seek.vec_env import SeekVecEnv

DELAY_S, CHUNK = 0.08, 8
TO_BALL, AHEAD = "to the ball", np.array([0.5, 0.0, 0.0, 0.0])


class ScriptedInference:
    """Answers after `DELAY_S`: a velocity towards the told ball, or `always`."""

    def __init__(self, world: InProcessWorld, room: SeekRoom) -> None:
        self.ready, self.fault, self.always = True, "", None  # type: bool, str, Any
        self.seen: list[dict[str, ndarray]] = []
        self.decisions: list[int] = []
        self._world, self._room, self._due_s, self._answer = world, room, None, np.zeros(0)  # type: Any, Any, Any, Any
        self.closed, self.delay_s = False, DELAY_S

    def request(self, seen: Any, decision: int, running: Any = None) -> bool:
        if self._due_s is not None or self.fault:
            return False
        self.seen.append(seen)
        self.decisions.append(decision)
        self._due_s = self._world.now() + self.delay_s
        self._answer = self._towards() if self.always is None else np.asarray(self.always)
        return True

    def _towards(self) -> ndarray:
        """As `SeekExpert`, held for the whole chunk."""
        body, scene = self._room.body, self._room._scene
        assert isinstance(scene, SeekScene)
        position, quat, _, _ = body.read()
        way = scene.balls_m[0, :, 0].double().numpy() - position
        far = np.linalg.norm(way)
        ahead = 2.0 * np.arctan2(quat[3], quat[0])
        cos, sin = np.cos(ahead), np.sin(ahead)
        level = np.array([cos * way[0] + sin * way[1], cos * way[1] - sin * way[0], way[2]])
        speed = np.clip(1.0 * (far - 0.5), -0.6, 0.6)
        return np.array([*(speed * level / far), 0.0])

    def poll(self) -> Any:
        if self._due_s is None or self._world.now() < self._due_s or self.fault:
            return None
        self._due_s = None
        return np.tile(self._answer.astype(np.float32), (CHUNK, 1)), DELAY_S

    def close(self) -> None:
        self.closed = True


class Flight:
    """A craft in the room of seed 3, its camera, filter and policy."""

    def __init__(
        self, bundle: Bundle, takeoff_m: float = 0.0, arm: bool = True, words: str = TO_BALL,
        odom_hz: float = 100.0,
    ) -> None:  # fmt: skip
        self.world, self.said = InProcessWorld(), list[str]()
        bus = {name: self.world.bus(name) for name in ("sim", "quad_policy", "flight_filter", "task")}
        self.bus = bus
        env = SeekVecEnv("seek", 1)
        self.room = SeekRoom(QuadBody(env.craft, level="rates", hover=HOVER), seed=3)
        self.robot = SimQuadNode(bus["sim"], SimulatedQuad(self.room.body), odom_hz)
        self.cameras = SimCameras(bus["sim"], {"front": FrontCamera(self.room, 64)}, "rgb", 20.0)
        flight_filter = FlightFilter(ENVELOPE, RatesLander(HOVER), odom_hz, odom_hz, "rates")
        self.filter = FlightFilterNode(
            bus["flight_filter"], flight_filter, 100.0, arm=arm, say=self.said.append
        )
        self.inference = ScriptedInference(self.world, self.room)
        self.policy = VelocityPolicyNode(
            bus["quad_policy"], bundle, self.inference, make_robot_loop(env.craft), HOVER, PictureSettings(),
            takeoff_m, say=self.said.append,
        )  # fmt: skip
        self.sent: list[FlightCommand] = []
        self.status: list[Diagnostics] = []
        FLIGHT_RAW.subscribe(bus["task"], lambda m, at: self.sent.append(m))
        POLICY_STATUS.subscribe(bus["task"], lambda m, at: self.status.append(m))
        if words:
            TASK.publisher(bus["task"])(Text(words))

    def until(self, seconds: float) -> None:
        self.bus["task"].spin(lambda: self.world.now() >= seconds)

    @property
    def sentence(self) -> str:
        return self.status[-1].status[0].message


def on_the_ground(bundle: Bundle, takeoff_m: float = 1.0, words: str = TO_BALL) -> Flight:
    """A flight that has not begun: the craft stands on the ground."""
    flight = Flight(bundle, takeoff_m, words=words)
    state = flight.room.body.state.clone()
    state[2] = 0.0
    flight.room.body.put(state)
    return flight
