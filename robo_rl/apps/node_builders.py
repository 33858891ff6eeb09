"""How each node is put together from its settings: the place where both the hardware and the simulator are known."""

from __future__ import annotations

from hardware.bus.protocol import Bus
from hardware.description import load_description
from hardware.messages import Image
from hardware.nodes.camera import CameraConfig, CameraNode
from hardware.nodes.diagnostics import DiagnosticsNode
from hardware.nodes.protocol import Node
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.topics import EPISODE, TOPICS, image_topic
from robo_rl.conf.node import (
    CameraNodeConfig,
    DiagnosticsNodeConfig,
    RecorderNodeConfig,
    SafetyFilterNodeConfig,
    SimRobotNodeConfig,
)
from robo_rl.core.errors import ConfigError


def diagnostics(config: DiagnosticsNodeConfig, bus: Bus) -> Node:
    return DiagnosticsNode(bus)


def camera(config: CameraNodeConfig, bus: Bus) -> Node:
    return CameraNode(
        bus, CameraConfig(config.camera, config.source, config.width, config.height, config.fps, config.loop)
    )


def recorder(config: RecorderNodeConfig, bus: Bus) -> Node:
    """All topics of the table, with the pictures of the cameras named."""
    plain = [topic for topic in TOPICS if topic.kind is not Image and topic is not EPISODE]
    return RecorderNode(bus, RecorderConfig(config.out, config.start), [*plain, *map(image_topic, config.cameras)])


def safety_filter(config: SafetyFilterNodeConfig, bus: Bus) -> Node:
    return SafetyFilterNode(bus, load_description(config.robot), arm=config.arm)


def sim_robot(config: SimRobotNodeConfig, bus: Bus) -> Node:
    """The simulators are imported here, where one is asked for."""
    if config.robot != "sim_arm":
        raise ConfigError(f"robot={config.robot} is not simulated yet.")
    from sim.engines.arm.body import ArmBody

    return SimArmNode(bus, ArmBody(), config.state_hz)
