"""Swarms in PyBullet: contacts, downwash, and states used for learning."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sim.engines.bullet.body import hull
from sim.engines.bullet.effects import EFFECTS, AirEffects
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.layout import POS, QUAT, ROTOR, VEL, parameters, start
from sim.flight.bullet.swarm import BulletSwarm
from sim.flight.swarm.swarm import Swarm, TrainingRules
from sim.flight.swarm.swarm_step import SwarmStep
from sim.flight.swarm.swarm_trial import fly_swarm
from sim.tasks.swarm.terms import SwarmSenses
from sim.tasks.swarm.world import ABSENT_M, SwarmWorld, arm_m
from tests.sim.flight.swarm.resumed import check_goes_on

pytest.importorskip("pybullet")

CRAFT = load_craft("cf2x_l2f")
SENSES = SwarmSenses(neighbours=3, cylinders=2, history=1, noise=False)
RADIUS_M, HEIGHT_M = hull(CRAFT)


def pair(
    *places: tuple[float, float, float], cylinders: Tensor | None = None, effects: tuple[str, ...] = EFFECTS
) -> tuple[BulletSwarm, Tensor]:
    """Drones of one world that hover at these places, and the engine that they hover in."""
    world = SwarmWorld(drones=len(places), arm_m=arm_m(CRAFT))
    engine = BulletSwarm(CRAFT, world, 1, AirEffects(effects))
    engine.place_cylinders(torch.full((2, 1, 1), ABSENT_M) if cylinders is None else cylinders)
    state = start(len(places))
    state[POS], state[ROTOR] = torch.tensor(places).T, CRAFT.hover_speed
    return engine, state


def step(engine: BulletSwarm, state: Tensor, craft: Craft = CRAFT) -> Tensor:
    """One control step at hover speed."""
    physics, num = engine.physics, state.shape[1]
    params = parameters(craft, physics.dt_s / physics.substeps)
    return engine(state, torch.full((4, num), craft.hover_speed), params, torch.zeros(9, num))


def swarm(*, other_engine: bool = True, pure: bool = True, gradient: bool = True, **changes: object) -> Swarm:
    world = SwarmWorld(drones=4, density=0.5, seconds=0.4, arm_m=arm_m(CRAFT))
    engine = BulletSwarm(CRAFT, world, 3, pure=pure) if other_engine else None
    return Swarm(CRAFT, world, SENSES, 3, 5, eager=True, other_engine=engine, gradient=gradient, **changes)  # type: ignore[arg-type]


def actions(num: int, steps: int) -> Tensor:
    hover = 2.0 * CRAFT.hover_speed - 1.0
    return hover + 0.2 * torch.randn(steps, 4, num, generator=torch.Generator().manual_seed(0))


def test_two_that_fly_into_each_other_meet_and_bounce() -> None:
    """At 1 m/s each from 0.4 m: they touch when their hulls do, never overlap, and part symmetrically."""
    engine, state = pair((-0.2, 0.0, 2.0), (0.2, 0.0, 2.0), effects=())
    assert isinstance(engine, SwarmStep)
    state[VEL.start] = torch.tensor([1.0, -1.0])
    met, apart = [], []
    for _ in range(25):
        state = step(engine, state)
        met.append(bool(engine.touched.drone.all()))
        apart.append(float(state[0, 1] - state[0, 0]))
    first = met.index(True)
    assert apart[first - 1] > 2.0 * RADIUS_M > apart[first - 1] - 0.021
    assert min(apart) > 2.0 * RADIUS_M - 0.004
    assert state[VEL.start, 0] < 0.0 < state[VEL.start, 1]
    assert float(state[VEL.start].sum()) == pytest.approx(0.0, abs=1e-3)  # equal masses: no momentum is made
    assert not engine.touched.cylinder.any()
    assert not met[-1]


def test_a_cylinder_stops_and_is_not_moved() -> None:
    """A cylinder is at its axis, also after it was moved; an absent one stops no drone."""
    axes = torch.tensor([1.0, 0.0]).view(2, 1, 1)
    engine, state = pair((0.4, 0.0, 2.0), cylinders=axes, effects=())
    for where, meets in (
        (axes, True),
        (axes + 1.0, False),
        (torch.full_like(axes, ABSENT_M), False),
        (axes, True),
    ):
        engine.place_cylinders(where)
        now, met = state.clone(), False
        now[VEL.start] = 1.0
        for _ in range(60):
            now = step(engine, now)
            met |= bool(engine.touched.cylinder[0])
        assert met == meets
        assert (now[0, 0] < 0.7 - RADIUS_M + 0.004) == meets


def test_the_air_of_the_one_above_pushes_the_one_below() -> None:
    """0.2 s at hover speed, 0.6 m apart: only the lower one sinks, and none without the effect."""
    places = (0.0, 0.0, 3.0), (0.0, 0.0, 2.4)
    sunk = []
    for effects in (("downwash",), ()):
        engine, state = pair(*places, effects=effects)
        for _ in range(20):
            state = step(engine, state)
        sunk.append(torch.tensor([3.0, 2.4]) - state[2])
    assert sunk[0][1] > 0.03
    assert sunk[0][0].abs() < 1e-3
    assert sunk[1].abs().max() < 1e-3


def test_a_drone_rests_on_the_floor_and_only_there() -> None:
    """Motors off, from 5 cm: it rests with its hull on z = 0, in contact with the floor only."""
    engine, state = pair((0.0, 0.0, 0.05), effects=())
    params = parameters(CRAFT, engine.physics.dt_s / engine.physics.substeps)
    for _ in range(60):
        state = engine(state, torch.zeros(4, 1), params, torch.zeros(9, 1))
    assert float(state[2]) == pytest.approx(0.5 * HEIGHT_M, abs=2e-3)
    assert [bool(part[0]) for part in engine.touched] == [False, False, True]


def test_worlds_of_one_engine_never_meet() -> None:
    """Two worlds with drones at equal places: no contact across, and equal flights to a fifth of a
    millimetre.
    """
    engine = BulletSwarm(CRAFT, SwarmWorld(drones=1, arm_m=arm_m(CRAFT)), 2)
    engine.place_cylinders(torch.tensor([[[0.5], [0.5]], [[0.0], [0.0]]]))
    state = start(2)
    state[2], state[ROTOR], state[VEL.start] = 2.0, CRAFT.hover_speed, 1.0
    for _ in range(30):
        state = step(engine, state)
    assert not engine.touched.drone.any()
    torch.testing.assert_close(state[:, 0], state[:, 1], rtol=0.0, atol=2e-4)


def test_states_of_pybullet_and_gradients_of_quad() -> None:
    """Ten steps: learning uses PyBullet's states bit for bit; gradients by the command are those of our
    physics.
    """
    led, ours = swarm(), swarm(other_engine=False)
    alone = BulletSwarm(CRAFT, SwarmWorld(drones=4, density=0.5), 3, pure=True)
    given = actions(led.num, 10)
    state = led.now.state.clone()
    alone.place_cylinders(led.now.cylinders)
    params = parameters(CRAFT, alone.physics.dt_s / alone.physics.substeps)
    for action in given:
        led.advance(action)
        state = alone(state, 0.5 * action + 0.5, params, torch.zeros(9, led.num))
    assert led.now.state.equal(state)
    assert not led.now.state.equal(ours.now.state)
    slopes = []
    for made in (swarm(), ours):
        action = given[0].clone().requires_grad_()
        made.advance(action)
        (slope,) = torch.autograd.grad(made.now.state[VEL].square().sum() + made.obs.sum(), action)
        slopes.append(slope)
    assert slopes[0].abs().max() > 1e-3
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0.02, atol=1e-3)


def test_loaded_swarm_continues_identically(tmp_path: Path) -> None:
    """Saved after ten of thirty steps, with worlds ending in between: another engine continues with equal
    bits.
    """
    rules = TrainingRules(seconds=0.12, replay=0.5)
    one, two = swarm(training=rules), swarm(training=rules)
    check_goes_on(one, two, actions(one.num, 30), 10, tmp_path)


def test_contact_restarts_in_training_and_fails_in_evaluation() -> None:
    """A drone whose hull touches a cylinder while its centre keeps the distance of `quad`."""
    for rules in (TrainingRules(replay=0.0), None):
        made = swarm(training=rules, gradient=rules is not None, pure=rules is not None)
        made.now.state, axis = made.now.state.clone(), made.now.cylinders[:, 0, 0]
        made.now.state[0:2, 0] = axis + torch.tensor([0.3 + RADIUS_M - 0.002, 0.0])
        made.now.state[2, 0] = 5.0
        made.now.state[QUAT, 0] = torch.tensor([1.0, 0.0, 0.0, 0.0])
        if rules is not None:
            _, back = made.step(made.idle)
            assert bool(back[0])
            assert bool(made.touching[0])
            assert made.now.state[0:2, 0].equal(made.now.home[0:2, 0])
        else:
            hover = made.idle
            trial, _ = fly_swarm(made, lambda obs, hover=hover: hover, 1)
            assert bool(trial.hit_cylinder[0, 0])
            assert not bool(trial.success[0, 0])
            assert not bool(trial.hit_cylinder[1].any())
