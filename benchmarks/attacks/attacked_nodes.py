"""Nodes under attack: how each is built, and the ordinary messages after which it must work again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attacks.lone_bus import LoneBus
from hardware import messages as m
from hardware import topics as t
from hardware.arms.bounds import JointLimits
from hardware.arms.ros2_control import Ros2ControlDriver
from hardware.arms.simulated import SimulatedArmDriver
from hardware.description import load_description
from hardware.nodes.action_head import ActionHeadNode
from hardware.nodes.arm_policy import ArmPolicyNode
from hardware.nodes.controller_driver import ControllerDriverNode
from hardware.nodes.diagnostics import DiagnosticsNode
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.nodes.robot_driver import ArmDriverNode, QuadDriverNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.shared.pictures import PictureSettings
from hardware.nodes.sim_robot import SimArmNode, SimQuadNode
from hardware.nodes.teleop import TeleopNode
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import RatesLander
from hardware.states import BodyRates, QuadState
from hardware.teleop.device import Feedback, OperatorInput
from policies.base.flow import Flow, FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.deploy.bundle import Bundle
from policies.deploy.bundle_writer import write_bundle
from policies.flight.policy import FlightPolicy
from robo_rl.apps.nodes.quads.hover_cell import SimulatedQuad, flight_env, flight_observer
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from sim.arms.arm6.body import SimulatedArm
from sim.engines.quad.craft import load_craft
from sim.flight.robot import QuadBody
from sim.flight.vec_env import QuadVecEnv

ENVELOPE = FlightEnvelope(0.8, 12.0, 2.0, (-0.8, -0.8, -0.8), (0.8, 0.8, 0.8))


@dataclass
class Attacked:
    """A node class under attack.

    make: a new node on this bus. work: topic of what it publishes after `usual`, its ordinary messages.
    """

    make: Callable[[LoneBus], Any]
    work: str
    usual: Callable[[float, int], Iterator[tuple[str, Any]]]


class Still:
    """Inference that answers at once with the arm's start position."""

    def __init__(self, joints: int) -> None:
        self.ready, self.fault, self._joints, self._asked = True, "", joints, False

    def request(self, seen: Any, decision: int, running: Any = None) -> bool:
        self._asked = True
        return True

    def poll(self) -> tuple[Any, float] | None:
        asked, self._asked = self._asked, False
        return (np.zeros((16, self._joints)), 0.01) if asked else None

    def close(self) -> None:
        """Nothing runs."""


class Pad:
    """A teleoperation device that is held nine tenths of each second."""

    def connect(self) -> None:
        """Nothing to open."""

    def get_action(self, now_s: float) -> OperatorInput:
        return OperatorInput(held=now_s % 1.0 < 0.9, rates=np.full(6, 0.5))

    def send_feedback(self, feedback: Feedback) -> None:
        """Nothing to show."""

    def help(self) -> str:
        return "held"

    def close(self) -> None:
        """Nothing is open."""


class Craft:
    """Driver of a quadcopter that hovers whatever it receives."""

    names: tuple[str, ...] = ()

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def connect(self) -> None:
        """Nothing to open."""

    def read(self) -> QuadState:
        return QuadState(self._clock(), np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), np.zeros(3))

    def write(self, command: BodyRates) -> BodyRates:
        return command

    def stop(self, reason: str) -> None:
        """It hovers on."""

    def close(self) -> None:
        """Nothing is open."""


def arm_bundle(folder: Path, names: tuple[str, ...], chunk: int, camera: bool = False) -> Bundle:
    """An untrained policy of joint positions, with or without a picture."""
    torch.manual_seed(0)
    named = ", ".join(names)
    obs = {"state": ArraySpec((len(names) + 1,), unit=f"rad: {named}; m: goal")}
    action = ActionSpec((-0.2,) * len(names), (0.2,) * len(names), f"rad: {named}")
    env = EnvSpec("attack/arm", obs, action, 100, 50.0)
    rows = {"state": torch.rand(64, len(names) + 1)}
    config = GenerativeConfig(
        chunk=chunk, execute=max(1, chunk // 2), net=MlpDenoiserConfig(width=8, depth=1)
    )
    policy = GenerativePolicy(env, Normalizer.fit(rows), config, Flow(FlowConfig(steps=1))).eval()
    bundle = write_bundle(folder, policy, env, name="attacked", noise="zero", training={})
    if camera:  # only the pictures' way to the policy is attacked, so that no network has to see them
        obs["image.view"] = ArraySpec((8, 8, 3), "uint8")
        object.__setattr__(bundle, "env", EnvSpec("attack/arm", obs, action, 100, 50.0))
    return bundle


def quad_bundle(folder: Path) -> Bundle:
    """An untrained flight policy of motor commands."""
    torch.manual_seed(0)
    env = QuadVecEnv("hover", 1)
    policy = FlightPolicy(env.spec, hidden=(8,), hover=0.0)
    return write_bundle(
        folder, policy, env.spec, name="attacked", noise="zero", training={}, envelope=ENVELOPE
    )


_UP = np.array([1.0, 0.0, 0.0, 0.0])


class Usual:
    """Ordinary messages. names: joints of the arm."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.zero = names, np.zeros(len(names))

    def state(self, now_s: float) -> tuple[str, Any]:
        return "joint_states", m.JointState(1e9 + now_s, self.names, self.zero, self.zero)

    def odom(self, now_s: float) -> tuple[str, Any]:
        return "odom", m.Odometry(1e9 + now_s, np.zeros(3), _UP, np.zeros(3), np.zeros(3))

    def command(self, topic: str, now_s: float) -> tuple[str, Any]:
        return topic, m.JointTrajectory(1e9 + now_s, self.names, self.zero[None], np.array([0.02]))

    def goal(self, count: int) -> tuple[str, Any]:
        return "goal", m.Floats(np.zeros(count))

    def head(self, now_s: float, i: int) -> Iterator[tuple[str, Any]]:
        yield self.goal(1)
        yield self.state(now_s)
        yield self.command("policy/chunk", now_s)

    def policy(self, now_s: float, i: int) -> Iterator[tuple[str, Any]]:
        yield self.goal(1)
        yield "camera/view/image_raw", m.Image(0.0, np.zeros((8, 8, 3), np.uint8))
        yield self.state(now_s)

    def controlled(self, now_s: float, i: int) -> Iterator[tuple[str, Any]]:
        yield self.state(now_s)
        yield self.command("command/safe", now_s)

    def arm_filter(self, now_s: float, i: int) -> Iterator[tuple[str, Any]]:
        if i == 0:
            yield "teleop/intervention", m.Flag(False)
            yield "estop", m.Flag(False)
        yield self.state(now_s)
        yield self.command("command/raw", now_s)

    def flight_filter(self, now_s: float, i: int) -> Iterator[tuple[str, Any]]:
        if i == 0:
            yield "estop", m.Flag(False)
        yield self.odom(now_s)
        yield "flight/raw", m.FlightCommand(1e9 + now_s, np.array([0.5, 0.0, 0.0, 0.0]))

    def fly(self, now_s: float, i: int) -> Iterator[tuple[str, Any]]:
        yield self.goal(3)
        yield self.odom(now_s)


def attacked_nodes(folder: Path) -> dict[str, Attacked]:
    """Name -> attacked node."""
    robot = load_description("sim_arm")
    names, joints = robot.names, len(robot.joints)
    chunked, single = arm_bundle(folder / "chunks", names, 16, True), arm_bundle(folder / "single", names, 1)
    quad = quad_bundle(folder / "quad")
    limits = JointLimits(tuple(robot.column("low_rad")), tuple(robot.column("high_rad")), (3.0,) * joints)
    usual = Usual(names)

    def flight_filter_node(bus: LoneBus) -> FlightFilterNode:
        flight_filter = FlightFilter(ENVELOPE, RatesLander(0.5), 100.0, 100.0, "rates")
        return FlightFilterNode(bus, flight_filter, 100.0, say=_quiet)

    def recorder(bus: LoneBus) -> RecorderNode:
        topics = [
            topic
            for topic in t.TOPICS
            if "<" not in topic.name and topic not in (t.RECORDER_REQUEST, t.SUCCESS, t.EPISODE)
        ]
        return RecorderNode(bus, RecorderConfig(str(folder / "recordings")), topics, _quiet)

    view = PictureSettings(age_s=1.0)
    pressed = PictureSettings(age_s=1.0, transport="compressed")
    return {
        "action_head": Attacked(
            lambda bus: ActionHeadNode(bus, robot, say=_quiet), "command/raw", usual.head
        ),
        "action_head single": Attacked(
            lambda bus: ActionHeadNode(bus, robot, single, say=_quiet), "command/raw", usual.head
        ),
        "arm_policy": Attacked(
            lambda bus: ArmPolicyNode(bus, chunked, robot, Still(joints), True, _quiet, pictures=view),  # type: ignore[arg-type]
            "policy/chunk",
            usual.policy,
        ),
        "arm_policy compressed": Attacked(
            lambda bus: ArmPolicyNode(bus, chunked, robot, Still(joints), True, _quiet, pictures=pressed),  # type: ignore[arg-type]
            "policy/status",
            lambda now_s, i: iter([usual.state(now_s)]),
        ),
        "quad_policy": Attacked(
            lambda bus: QuadPolicyNode(bus, quad, flight_observer(flight_env(quad)), say=_quiet),
            "flight/raw",
            usual.fly,
        ),
        "safety_filter": Attacked(
            lambda bus: SafetyFilterNode(bus, robot, say=_quiet), "command/safe", usual.arm_filter
        ),
        "flight_filter": Attacked(flight_filter_node, "flight/safe", usual.flight_filter),
        "sim_robot arm": Attacked(
            lambda bus: SimArmNode(bus, SimulatedArm(), 100.0, robot),
            "joint_states",
            lambda now_s, i: iter([usual.command("command/safe", now_s)]),
        ),
        "sim_robot quad": Attacked(
            lambda bus: SimQuadNode(bus, SimulatedQuad(QuadBody(load_craft("cf2x_l2f"))), 100.0),
            "odom",
            lambda now_s, i: iter([("flight/safe", m.FlightCommand(0.0, np.zeros(4)))]),
        ),
        "robot_driver arm": Attacked(
            lambda bus: ArmDriverNode(bus, _arm_driver(bus, limits), 100.0, robot, _quiet),
            "joint_states",
            lambda now_s, i: iter([usual.command("command/safe", now_s)]),
        ),
        "controller_driver": Attacked(
            lambda bus: ControllerDriverNode(bus, _controller(bus, limits, names), _quiet),
            "jtc/joint_trajectory",
            usual.controlled,
        ),
        "robot_driver quad": Attacked(
            lambda bus: QuadDriverNode(bus, Craft(bus.now), 100.0, "rates", say=_quiet),
            "odom",
            lambda now_s, i: iter([("flight/safe", m.FlightCommand(0.0, np.zeros(4)))]),
        ),
        "teleop": Attacked(
            lambda bus: TeleopNode(bus, Pad(), robot, _quiet),
            "teleop/command",
            lambda now_s, i: iter([usual.state(now_s)]),
        ),
        "diagnostics": Attacked(
            lambda bus: DiagnosticsNode(bus, _quiet), "/diagnostics", lambda now_s, i: iter(())
        ),
        "recorder": Attacked(
            recorder, "episode/status", lambda now_s, i: iter([("episode/ask", m.Text("start"))])
        ),
    }


def _arm_driver(bus: LoneBus, limits: JointLimits) -> SimulatedArmDriver:
    return SimulatedArmDriver(SimulatedArm(), limits, clock=bus.now)


def _controller(bus: LoneBus, limits: JointLimits, names: tuple[str, ...]) -> Ros2ControlDriver:
    bounds = {"low_rad": limits.low_rad, "high_rad": limits.high_rad, "velocity_rad_s": limits.velocity_rad_s}
    return Ros2ControlDriver(bus, names, controller="jtc", say=_quiet, **bounds)


def _quiet(sentence: str) -> None:
    """Terminal output of a node is ignored."""
