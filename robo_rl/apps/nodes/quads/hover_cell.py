"""Nodes around the simulated quadcopter, and its task: hover at successive points."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Bus
from hardware.checks.flight_contract import allowed_envelope, check_craft, level_of
from hardware.messages import Floats, Odometry
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.shared.protocol import Node
from hardware.nodes.sim_robot import SimQuadNode
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.flight_limits import Level
from hardware.safety.landing import Lander, MotorsLander, RatesLander
from hardware.safety.reasons import Reason
from hardware.topics import GOAL
from policies.deploy.bundle import Bundle
from policies.flight.observer import FlightObserver
from robo_rl.apps.nodes.quads.craft_model import craft_model
from robo_rl.apps.nodes.run_robot import Cell, loop_figures
from robo_rl.conf.schema import RunConfig
from robo_rl.core.flight.envelope import CraftLimits
from robo_rl.core.flight.frames import rotation_of
from robo_rl.core.shapes import Float
from robo_rl.core.text.commands import command
from sim.flight.robot import QuadBody
from sim.flight.vec_env import QuadVecEnv
from sim.registry import make_env

HOVER = 0.5  # level=rates: the thrust at which the simulated autopilot hovers
EPISODE_S, CLOSE_M, HELD_S, REACH_M = 5.0, 0.1, 1.0, 0.15


class SimulatedQuad:
    """The simulator's craft with the messages of the bus."""

    def __init__(self, body: QuadBody) -> None:
        self._body = body
        self.reset, self.command, self.advance = body.reset, body.command, body.advance

    def read(self, stamp_s: float) -> Odometry:
        position, quat, velocity, rates = self._body.read()
        return Odometry(stamp_s, position, quat, rotation_of(quat).T @ velocity, rates)


class HoverScorer:
    """One goal per episode; solved when the craft stayed within 10 cm of it for the last second."""

    def __init__(self, bus: Bus, body: QuadBody, seed: int) -> None:
        self.success, self.ended = list[bool](), False
        self._bus, self._body, self._rng = bus, body, np.random.default_rng(seed)
        self._tell, self._goal_m = GOAL.publisher(bus), np.zeros(3)
        self._away_s = 0.0
        bus.timer(0.02, self._look)

    def begin(self, episode: int) -> None:
        self._goal_m = np.zeros(3) if episode == 0 else self._rng.uniform(-REACH_M, REACH_M, 3)
        self._away_s = self._bus.now()
        self.success.append(False)
        self._tell(Floats(self._goal_m))

    def _look(self) -> None:
        if self.success:
            away: Float[ndarray, " 3"] = self._body.read()[0] - self._goal_m
            if np.linalg.norm(away) > CLOSE_M:
                self._away_s = self._bus.now()
            self.success[-1] = self._bus.now() - self._away_s >= HELD_S


def flight_env(bundle: Bundle) -> QuadVecEnv:
    """Environment of the bundle's name, with its craft and senses.

    Raises CheckpointError for any other bundle.
    """
    check_craft(bundle)
    env = make_env(bundle.env.name, 1)
    assert isinstance(env, QuadVecEnv)
    return env


def flight_observer(env: QuadVecEnv) -> FlightObserver:
    """Observer of the policy's observation, as in training."""
    return FlightObserver(
        env.senses.history, env.senses.integral, env.command.hover, env.task.dt_s, env.senses.integral_limit
    )


def _level_word(level: Level) -> str:
    return "" if level == "motors" else f" level={level}"


def hover_cell(config: RunConfig, bundle: Bundle, world: InProcessWorld) -> Cell:
    """Build the cell. Raises CheckpointError for a bundle of another task."""
    env, envelope = flight_env(bundle), allowed_envelope(bundle, CraftLimits(), say=print)
    level, rate_hz = level_of(bundle), bundle.env.control_hz
    body = QuadBody(env.craft, level=level, hover=HOVER)
    buses = {name: world.bus(name) for name in ("sim_robot", "quad_policy", "flight_filter", "task")}
    sim = SimQuadNode(buses["sim_robot"], SimulatedQuad(body), rate_hz)
    lander: Lander = (
        MotorsLander(craft_model(env.craft), 1.0 / rate_hz) if level == "motors" else RatesLander(HOVER)
    )
    safety = FlightFilterNode(
        buses["flight_filter"], FlightFilter(envelope, lander, rate_hz, rate_hz, level), rate_hz
    )
    policy = QuadPolicyNode(buses["quad_policy"], bundle, flight_observer(env), hover=HOVER)
    scorer = HoverScorer(buses["task"], body, config.seed)
    nodes: list[tuple[Node, Bus]] = [(safety, buses["flight_filter"]), (policy, buses["quad_policy"])]

    def stopped() -> Reason | None:
        return None if safety.filter.phase is FlightPhase.FLYING else safety.filter.reason

    return Cell(
        nodes=[*nodes, (sim, buses["sim_robot"])],
        task=scorer,
        ready=lambda: True,
        fault=lambda: "",
        arm=lambda: buses["task"].call("flight_filter/arm", 1.0),
        stopped=stopped,
        counts=safety.filter.counts,
        timing=lambda: f"{policy.decisions} decisions at {rate_hz:g} Hz, {policy.timing}",
        figures=lambda: loop_figures(policy.timing),
        next=f"{command('up quad_sim', bundle=bundle.folder)}{_level_word(level)}   "
        "(the same nodes as processes on a bus)",
        episode_s=EPISODE_S,
    )
