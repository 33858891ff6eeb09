"""Nodes around the simulated quadcopter that seeks a ball by its camera and an instruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy import ndarray

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Bus
from hardware.checks.flight_contract import allowed_envelope, check_flight
from hardware.loop.inference import InferenceProcess
from hardware.loop.observation import IMAGE
from hardware.messages import Text
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.shared.pictures import PictureSettings
from hardware.nodes.sim_cameras import SimCameras
from hardware.nodes.sim_robot import SimQuadNode
from hardware.nodes.velocity_policy import VelocityPolicyNode
from hardware.quads.link import LINK_HZ
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import RatesLander
from hardware.safety.reasons import Reason
from hardware.topics import TASK
from policies.deploy.bundle import Bundle
from policies.remote.address import parse_address
from robo_rl.apps.nodes.quads.hover_cell import HOVER, SimulatedQuad
from robo_rl.apps.nodes.quads.velocity_loop import make_robot_loop
from robo_rl.apps.nodes.run_robot import Cell, loop_figures
from robo_rl.conf.schema import RunConfig
from robo_rl.core.errors import CheckpointError, EnvError
from robo_rl.core.flight.envelope import CraftLimits, FlightEnvelope
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, UInt8
from robo_rl.core.text.commands import command
from sim.flight.robot import QuadBody
from sim.flight.seek.body import PICTURE_PX, SeekRoom
from sim.flight.seek.task import CONTROL_HZ
from sim.flight.seek.vec_env import SeekVecEnv
from sim.registry import make_env

CAMERA = "front"
BEYOND_M = 0.5  # distance of the fence from the walls of the room


class FrontCamera:
    """Front camera of a simulated craft, for `SimCameras`."""

    def __init__(self, room: SeekRoom, size_px: int) -> None:
        self._room, self._size_px = room, size_px

    def rgb(self) -> UInt8[ndarray, "h w 3"]:
        return self._room.picture(self._size_px)

    def depth_m(self) -> Float[ndarray, "h w"]:
        raise EnvError("The front camera of the simulated quadcopter measures no depth.")

    def rgbd(self) -> tuple[UInt8[ndarray, "h w 3"], Float[ndarray, "h w"]]:
        return self.rgb(), self.depth_m()


class SeekScorer:
    """Begins the episodes of an evaluation with this seed, one after the other, and scores them as the
    environment does. on_begin is called after the craft was put to its start.
    """

    def __init__(self, bus: Bus, room: SeekRoom, seed: int, on_begin: Callable[[], object]) -> None:
        self.success, self.ended = list[bool](), False
        self._room, self._seed, self._on_begin = room, seed, on_begin
        self._tell = TASK.publisher(bus)
        bus.timer(1.0 / CONTROL_HZ, self._look)

    def begin(self, episode: int) -> None:
        """Begin the next episode, and publish its instruction."""
        self._room.begin(derive_seed("eval", self._seed, episode))
        self.success.append(False)
        self.ended = False
        self._on_begin()
        self._tell(Text(self._room.instruction))

    def _look(self) -> None:
        if self.success and not self.ended:
            verdict = self._room.verdict()
            self.success[-1], self.ended = bool(verdict.success), bool(verdict.ended)


def seek_env(bundle: Bundle) -> SeekVecEnv:
    """The bundle's environment, one lane. Raises CheckpointError for an environment of another suite."""
    env = make_env(bundle.env.name, 1)
    if not isinstance(env, SeekVecEnv):
        raise CheckpointError(
            f"The bundle {bundle.folder} commands velocities for {bundle.env.name}; expected drone/seek."
        )
    return env


def seen_px(bundle: Bundle | None) -> int:
    """Side of the front camera's pictures that the bundle is shown; the usual one where it is shown none."""
    seen = None if bundle is None else bundle.env.obs.get(f"{IMAGE}{CAMERA}")
    return PICTURE_PX if seen is None else seen.shape[0]


def wider(envelope: FlightEnvelope) -> FlightEnvelope:
    """The envelope with a fence beyond the room, so that leaving the room ends an episode and not the run."""
    low, high = (np.array(corner) for corner in (envelope.fence_low_m, envelope.fence_high_m))
    x0, y0, z0 = (low - BEYOND_M).tolist()
    x1, y1, z1 = (high + BEYOND_M).tolist()
    return replace(envelope, fence_low_m=(x0, y0, z0), fence_high_m=(x1, y1, z1))


def seek_cell(config: RunConfig, bundle: Bundle, world: InProcessWorld) -> Cell:
    """Build the cell. Raises CheckpointError for a bundle that no craft may fly."""
    check_flight(bundle, "rates")
    envelope, env = wider(allowed_envelope(bundle, CraftLimits(), say=print)), seek_env(bundle)
    body = QuadBody(env.craft, level="rates", hover=HOVER)
    room = SeekRoom(body, config.seed, hold_steps=env.hold_steps, from_ball=env.from_ball)
    buses = {name: world.bus(name) for name in ("sim_robot", "quad_policy", "flight_filter", "task")}
    sim = SimQuadNode(buses["sim_robot"], SimulatedQuad(room.body), LINK_HZ)
    SimCameras(
        buses["sim_robot"],
        {CAMERA: FrontCamera(room, seen_px(bundle))},
        "rgb",
        CONTROL_HZ,
    )
    filter_ = FlightFilter(envelope, RatesLander(HOVER), LINK_HZ, LINK_HZ, "rates")
    safety = FlightFilterNode(buses["flight_filter"], filter_, LINK_HZ)
    remote = parse_address(config.remote) if config.remote else None
    inference = InferenceProcess(bundle, cast(Any, config.device), config.threads, config.seed, False, remote)
    policy = VelocityPolicyNode(
        buses["quad_policy"], bundle, inference, make_robot_loop(env.craft), HOVER, PictureSettings()
    )
    scorer = SeekScorer(
        buses["task"], room, config.seed, lambda: buses["task"].call("quad_policy/reset", 1.0)
    )

    def stopped() -> Reason | None:
        return None if filter_.phase is FlightPhase.FLYING else filter_.reason

    return Cell(
        nodes=[
            (safety, buses["flight_filter"]), (policy, buses["quad_policy"]), (sim, buses["sim_robot"]),
        ],
        task=scorer,
        ready=lambda: policy.ready,
        fault=lambda: policy.fault,
        arm=lambda: buses["task"].call("flight_filter/arm", 1.0),
        stopped=stopped,
        counts=filter_.counts,
        timing=lambda: f"{policy.requests.inferred} chunks, velocity loop {policy.timing}",
        figures=lambda: loop_figures(policy.timing, policy.requests.took),
        next=f"{command('up quad_sim', bundle=bundle.folder, level='rates', scene='seek')} "
        "instruction='fly to the red ball'"
        "   (the same nodes as processes on a bus)",
        episode_s=env.spec.max_episode_steps / CONTROL_HZ,
    )  # fmt: skip
