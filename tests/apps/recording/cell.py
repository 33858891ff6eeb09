"""A small arm behind the real safety filter, two cameras, and the recording app, in virtual time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.bus.in_process import InProcessWorld
from hardware.checks.faulty_bus import FaultyBus, MessageFault
from hardware.description import RobotDescription
from hardware.messages import Image
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.safety.phase import Phase
from hardware.topics import image_topic
from robo_rl.apps.recording.callers import DirectCaller
from robo_rl.apps.recording.dataset import longest_frames, open_dataset, spec_of
from robo_rl.apps.recording.episodes import Episodes
from robo_rl.apps.recording.node import RecordAppNode
from robo_rl.apps.recording.requests import parse_request
from robo_rl.apps.recording.settings import AppSettings
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.conf.record import RecordingSettings
from robo_rl.data.episodes.reader import EpisodeStore
from tests.hardware.arm_descriptions import NAMES, arm

SIDE_PX = 8
CAMERA = {"width_px": SIDE_PX, "height_px": SIDE_PX, "rate_hz": 20}


class ObedientArm:
    """An arm that is where it was told to be."""

    names: tuple[str, ...] = NAMES

    def __init__(self) -> None:
        self.q_rad = np.array([0.1, 0.3, 0.4])

    def reset(self) -> None:
        self.q_rad = np.array([0.1, 0.3, 0.4])

    def read(self) -> tuple[ndarray, ndarray]:
        return self.q_rad.copy(), np.zeros(3)

    def command(self, position_rad: ndarray) -> None:
        self.q_rad = position_rad.copy()

    def advance(self, dt_s: float) -> None:
        """Do nothing: it moved at once."""


class FakeCameras:
    """Cameras whose pictures count up; faults are injected into their bus."""

    def __init__(self, world: InProcessWorld, names: tuple[str, ...]) -> None:
        self.bus, self.count = FaultyBus(world.bus("cameras")), 0
        self._show = {name: image_topic(name).publisher(self.bus) for name in names}
        self.bus.timer(1.0 / CAMERA["rate_hz"], self._tick)

    def _tick(self) -> None:
        self.count += 1
        for name, show in self._show.items():
            pixels = np.full((SIDE_PX, SIDE_PX, 3), self.count % 256, np.uint8)
            show(Image(self.bus.stamp(), pixels, f"{name}_optical"))

    def inject(self, camera: str, fault: MessageFault) -> None:
        """Let a camera suffer a fault from now on."""
        self.bus.inject(image_topic(camera).name, fault)

    def cure(self, camera: str) -> None:
        """End the fault of a camera."""
        self.bus.cure(image_topic(camera).name)


@dataclass
class RecordingCell:
    """The nodes, and what a test asks of them."""

    world: InProcessWorld
    robot: RobotDescription
    arm: ObedientArm
    filter: SafetyFilterNode
    cameras: FakeCameras
    node: RecordAppNode
    shared: SharedState
    out: Path
    said: list[str]

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        until_s = self.world.now() + seconds
        self.world.run(lambda: self.world.now() >= until_s)

    def ask(self, **request: Any) -> None:
        """Send a request as the page does, and let the app act on it."""
        import json

        self.node.handle(parse_request(json.dumps(request)), self.world.now())

    def drive(self, seconds: float, values: tuple[float, ...] = (0.5, 0.0, 0.0)) -> None:
        """Drive the joints, with a new input every 40 ms as long as they are held."""
        until_s = self.world.now() + seconds
        while self.world.now() < until_s:
            self.ask(kind="drive", mode="joints", values=list(values))
            self.run(0.04)
        self.ask(kind="release")

    def edit(self, **request: Any) -> None:
        """Ask for an edit of the dataset, and wait for its thread."""
        self.ask(**request)
        while self.node.episodes.state == "editing":
            time.sleep(0.005)
            self.run(0.02)

    @property
    def armed(self) -> bool:
        return self.filter.filter.phase is Phase.ARMED

    def store(self) -> EpisodeStore:
        return EpisodeStore(self.out)


def make_cell(
    out: Path,
    robot: RobotDescription | None = None,
    world: InProcessWorld | None = None,
    drives: bool = True,
    **settings: Any,
) -> RecordingCell:
    """A cell that has run for half a second and is armed. world: by default one with virtual time."""
    robot = robot or arm(cameras={"front": CAMERA, "wrist": CAMERA})
    given = RecordingSettings(robot=robot.name, out=str(out), min_free_gb=0.0, **settings)
    opened = open_dataset(given, spec_of(given, robot, simulated=False))
    world, said = world or InProcessWorld(), list[str]()
    body = ObedientArm()
    SimArmNode(world.bus("sim_robot"), body, robot.state_hz, robot)
    filter_ = SafetyFilterNode(world.bus("safety_filter"), robot, arm=True, say=said.append)
    names = tuple(robot.cameras)
    cameras = FakeCameras(world, names)
    spec, shared = opened.writer.spec, SharedState()
    episodes = Episodes(opened.writer, opened.tally, longest_frames(given, spec)[0], given.operator)
    episodes.instruct(given.task)
    bus = world.bus("record_app")
    app = AppSettings(robot, spec, names, out, drives=drives, resets=True, floor_bytes=0)
    node = RecordAppNode(bus, app, episodes, shared, DirectCaller(bus), said.append)
    cell = RecordingCell(world, robot, body, filter_, cameras, node, shared, out, said)
    cell.run(0.5)
    return cell
