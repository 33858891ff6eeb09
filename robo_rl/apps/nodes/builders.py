"""Builders of the nodes: the only module that imports both hardware and simulator.

Each builder imports what its node needs, so that a node starts without the packages of the others; robot
nodes start without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from robo_rl.core.errors import ConfigError

PICTURE_PX = 84  # side of a simulated camera's pictures that the description does not name

if TYPE_CHECKING:
    from hardware.bus.protocol import Bus
    from hardware.nodes.shared.protocol import Node
    from hardware.topic import Topic
    from policies.deploy.bundle import Bundle
    from robo_rl.conf.node import (
        ActionHeadNodeConfig,
        ArmPolicyNodeConfig,
        CameraNodeConfig,
        DiagnosticsNodeConfig,
        FlightFilterNodeConfig,
        QuadPolicyNodeConfig,
        RecorderNodeConfig,
        SafetyFilterNodeConfig,
        SimRobotNodeConfig,
        TaskNodeConfig,
    )
    from sim.flight.seek.body import SeekRoom


def diagnostics(config: DiagnosticsNodeConfig, bus: Bus) -> Node:
    from hardware.nodes.diagnostics import DiagnosticsNode

    return DiagnosticsNode(bus)


def camera(config: CameraNodeConfig, bus: Bus) -> Node:
    from hardware.nodes.camera import CameraConfig, CameraNode

    size = config.width, config.height
    jpeg = config.transport, config.quality
    if config.quality > 100:
        raise ConfigError(f"quality={config.quality} cannot be used, expected 1 to 100.")
    return CameraNode(
        bus,
        CameraConfig(config.camera, config.source, *size, config.fps, config.loop, *jpeg, config.calibration),
    )


def recorder(config: RecorderNodeConfig, bus: Bus) -> Node:
    """A recorder of all topics of the table, and of the named cameras."""
    from hardware.nodes.recorder import RecorderConfig, RecorderNode
    from hardware.topics import (
        EPISODE,
        HEARTBEAT,
        RECORDER_REQUEST,
        TOPICS,
        camera_info_topic,
        compressed_topic,
        depth_topic,
        image_topic,
    )

    unrecorded = RECORDER_REQUEST, EPISODE, HEARTBEAT
    plain = [topic for topic in TOPICS if "<name>" not in topic.name and topic not in unrecorded]
    names = [name for name in config.cameras.split("+") if name]
    if wrong := [name for name in names if not name.isidentifier()]:
        raise ConfigError(
            f"cameras={config.cameras}: '{wrong[0]}' is no camera's name. Join names by +: wrist+front."
        )
    kinds: list[Callable[[str], Topic[Any]]] = [camera_info_topic]
    kinds += [image_topic] if config.transport != "compressed" else []
    kinds += [compressed_topic] if config.transport != "raw" else []
    kinds += [depth_topic] if config.depth else []
    seen = [topic(camera) for camera in names for topic in kinds]
    return RecorderNode(bus, RecorderConfig(config.out, config.start), [*plain, *seen])


def arm_policy(config: ArmPolicyNodeConfig, bus: Bus) -> Node:
    """Chunk policy node whose contract with the robot is checked before its inference process starts."""
    from hardware.checks.arm_contract import check_contract
    from hardware.description import load_description
    from hardware.loop.inference import InferenceProcess
    from hardware.nodes.arm_policy import ArmPolicyNode
    from hardware.nodes.shared.pictures import PictureSettings
    from policies.deploy.bundle import load_bundle
    from policies.remote.address import parse_address

    bundle, robot = load_bundle(Path(config.bundle)), load_description(config.robot)
    check_contract(bundle, robot)
    remote = parse_address(config.remote) if config.remote else None
    if config.realtime:
        from hardware.loop.sampler import check_guidable

        check_guidable(bundle)
    pictures = PictureSettings(config.picture_age_s, config.transport)
    inference = InferenceProcess(
        bundle, cast(Any, config.device), config.threads, config.seed, config.realtime, remote
    )
    return ArmPolicyNode(bus, bundle, robot, inference, config.start, print, config.realtime, pictures)


def action_head(config: ActionHeadNodeConfig, bus: Bus) -> Node:
    from hardware.checks.arm_contract import check_contract
    from hardware.description import load_description
    from hardware.loop.heartbeat import HEARTBEAT_S, LEAST_TIMEOUT_S
    from hardware.nodes.action_head import ActionHeadNode
    from hardware.nodes.shared.pictures import PictureSettings
    from policies.deploy.bundle import load_bundle

    bundle, robot = (
        None if config.bundle is None else load_bundle(Path(config.bundle)),
        load_description(config.robot),
    )
    if bundle is not None:
        check_contract(bundle, robot)
    pictures = PictureSettings(config.picture_age_s, config.transport)
    heartbeat_s = config.heartbeat_s
    if heartbeat_s is not None and 0.0 < heartbeat_s < LEAST_TIMEOUT_S:
        raise ConfigError(
            f"heartbeat_s={heartbeat_s:g} cannot be used: arm_policy sends a heartbeat every "
            f"{HEARTBEAT_S:g} s, and two may be late. Expected {LEAST_TIMEOUT_S:g} s or more, or 0 to play "
            "the last chunk of a dead policy to its end."
        )
    return ActionHeadNode(bus, robot, bundle, start=config.start, pictures=pictures, heartbeat_s=heartbeat_s)


def task(config: TaskNodeConfig, bus: Bus) -> Node:
    from hardware.nodes.task import TaskNode

    return TaskNode(bus, config.goal, config.words)


def safety_filter(config: SafetyFilterNodeConfig, bus: Bus) -> Node:
    from hardware.description import load_description
    from hardware.nodes.safety_filter import SafetyFilterNode

    return SafetyFilterNode(bus, load_description(config.robot), arm=config.arm)


def flight_filter(config: FlightFilterNodeConfig, bus: Bus) -> Node:
    """A flight filter that lands by the craft's rotor model (motors) or by its hover thrust (rates)."""
    from hardware.checks.flight_contract import allowed_envelope, check_level
    from hardware.nodes.flight_filter import FlightFilterNode
    from hardware.safety.flight import FlightFilter
    from hardware.safety.landing import Lander, MotorsLander, RatesLander
    from policies.deploy.bundle import load_bundle
    from robo_rl.core.flight.envelope import CraftLimits

    lander: Lander = RatesLander(config.hover)
    bundle, level = load_bundle(Path(config.bundle)), cast(Any, config.level)
    if config.level == "motors":
        from robo_rl.apps.nodes.quads.craft_model import bundle_craft, craft_model
        from sim.engines.quad.craft import load_craft

        craft = load_craft(config.craft) if config.craft else bundle_craft(bundle)
        lander = MotorsLander(craft_model(craft), 1.0 / config.command_hz)
    limits = CraftLimits(
        config.max_tilt_rad,
        config.max_rate_rad_s,
        config.max_speed_m_s,
        fence_m=cast(Any, tuple(config.fence_m)),
    )
    envelope = allowed_envelope(bundle, limits, say=print)
    check_level(bundle, level)
    filter_ = FlightFilter(envelope, lander, config.command_hz, config.state_hz, level, config.ground_m)
    return FlightFilterNode(bus, filter_, config.command_hz, arm=config.arm)


def quad_policy(config: QuadPolicyNodeConfig, bus: Bus) -> Node:
    """Policy node of a quadcopter: of a bundle that hovers, or of one that commands velocities."""
    from hardware.checks.flight_contract import commands_velocity
    from hardware.nodes.quad_policy import QuadPolicyNode
    from policies.deploy.bundle import load_bundle
    from robo_rl.apps.nodes.quads.hover_cell import flight_env, flight_observer

    if len(config.goal_m) != 3:
        raise ConfigError(f"goal_m={config.goal_m} cannot be used, expected three numbers: x, y, z.")
    x, y, z = config.goal_m
    bundle = load_bundle(Path(config.bundle))
    if commands_velocity(bundle):
        return _velocity_policy(config, bus, bundle)
    if config.remote:
        raise ConfigError("remote=<host>:<port> is for bundles of chunks; leave it out.")
    return QuadPolicyNode(
        bus, bundle, flight_observer(flight_env(bundle)), (x, y, z), config.start, hover=config.hover
    )


def _velocity_policy(config: QuadPolicyNodeConfig, bus: Bus, bundle: Bundle) -> Node:
    from hardware.checks.flight_contract import check_craft
    from hardware.loop.inference import InferenceProcess
    from hardware.nodes.shared.pictures import PictureSettings
    from hardware.nodes.velocity_policy import VelocityPolicyNode
    from policies.remote.address import parse_address
    from robo_rl.apps.nodes.quads.seek_cell import seek_env
    from robo_rl.apps.nodes.quads.velocity_loop import make_robot_loop

    check_craft(bundle)
    remote = parse_address(config.remote) if config.remote else None
    inference = InferenceProcess(bundle, cast(Any, config.device), config.threads, config.seed, False, remote)
    pictures = PictureSettings(config.picture_age_s, config.transport)
    loop = make_robot_loop(seek_env(bundle).craft)
    return VelocityPolicyNode(
        bus, bundle, inference, loop, config.hover, pictures, config.takeoff_m, config.start
    )


def sim_robot(config: SimRobotNodeConfig, bus: Bus) -> Node:
    """A simulated arm with its cameras, or a simulated quadcopter."""
    from robo_rl.apps.nodes.preflight_pictures import check_scene

    check_scene([("sim_robot", config)])
    if config.robot == "sim_quad":
        return _sim_quad(config, bus)
    from hardware.description import load_description
    from hardware.nodes.sim_robot import SimArmNode
    from sim.arms.arm6.body import SimulatedArm
    from sim.arms.arm6.gripper import gripping_arm
    from sim.arms.arm6.peg_cell import PegCell

    robot = load_description(config.description)
    gripper = robot.gripper is not None
    if gripper and config.scene == "peg":
        raise ConfigError("scene=peg has a peg in the place of a gripper: leave out scene= or description=.")
    cell = PegCell(config.seed) if config.scene == "peg" else gripping_arm() if gripper else SimulatedArm()
    arm = cell.body if isinstance(cell, PegCell) else cell
    node = SimArmNode(bus, cell, config.state_hz or robot.state_hz, robot)
    if config.cameras:
        from hardware.nodes.sim_cameras import SimCameras
        from sim.arms.arm6.camera import ArmCamera

        sides_px = {name: known.width_px for name, known in robot.cameras.items()}
        cameras = {
            name: ArmCamera(arm, name, config.image_size or sides_px.get(name, PICTURE_PX))
            for name in config.cameras.split("+")
        }
        SimCameras(bus, cameras, config.senses, config.camera_hz)
    return node


def _sim_quad(config: SimRobotNodeConfig, bus: Bus) -> Node:
    """A simulated quadcopter, in the room of `drone/seek` with its front camera at scene=seek; craft and
    pictures are those that the bundle was trained with.
    """
    if config.cameras:
        raise ConfigError("robot=sim_quad has the camera front at scene=seek; leave out cameras=.")
    from hardware.nodes.sim_robot import SimQuadNode
    from hardware.quads.link import LINK_HZ
    from policies.deploy.bundle import load_bundle
    from robo_rl.apps.nodes.quads.craft_model import bundle_craft
    from robo_rl.apps.nodes.quads.hover_cell import SimulatedQuad
    from sim.engines.quad.craft import load_craft
    from sim.flight.robot import QuadBody

    bundle = load_bundle(Path(config.bundle)) if config.bundle else None
    craft = load_craft(config.craft) if config.craft else bundle_craft(bundle)
    body = QuadBody(craft, level=config.level, hover=config.hover)
    quad = SimulatedQuad(body)
    if config.scene == "seek":
        from hardware.nodes.sim_cameras import SimCameras
        from robo_rl.apps.nodes.quads.seek_cell import CAMERA, FrontCamera, seen_px
        from sim.flight.seek.body import SeekRoom

        room = SeekRoom(body, config.seed, at_rest=True)
        quad.reset = partial(_reset_room, bus, room)
        print(f"{bus.name}: {_balls_in(room)}", flush=True)
        camera = FrontCamera(room, config.image_size or seen_px(bundle))
        SimCameras(bus, {CAMERA: camera}, "rgb", config.camera_hz)
    return SimQuadNode(bus, quad, config.state_hz or LINK_HZ)


def _balls_in(room: SeekRoom) -> str:
    return f"the room has the balls {', '.join(room.balls)}"


def _reset_room(bus: Bus, room: SeekRoom) -> None:
    room.reset()
    print(f"{bus.name}: {_balls_in(room)}", flush=True)
