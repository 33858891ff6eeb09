"""PyBullet compared with equations: fall, hover, rotation, floor contact, and flights in `quad`."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError, MissingDependencyError, UnknownNameError
from sim.engines.bullet.body import hull
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.motion import Motion
from sim.engines.bullet.step import BulletStep
from sim.engines.bullet.world import BulletWorld
from sim.engines.quad.craft import GRAVITY_M_S2, Craft, load_craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import (
    FORCE,
    POS,
    QUAT,
    RATE,
    ROTOR,
    TORQUE,
    VEL,
    WIND,
    Spread,
    parameters,
    start,
)
from sim.flight.bullet.flights import bullet_flights
from sim.flight.command import CommandLevel
from sim.flight.flights import Flights
from sim.flight.realism import Realism
from sim.flight.trial import controller_pilot, fly
from sim.tasks.flight.hover import HoverTask, tilted
from sim.tasks.flight.observation import FlightSenses

pytest.importorskip("pybullet")

CRAFT = load_craft("cf2x_l2f")
STILL = AirEffects(effects=(), height_m=50.0)
NOTHING = torch.zeros(9, 1)


def flown(step: BulletStep, state: Tensor, command: Tensor, steps: int) -> Tensor:
    """The state after so many control steps of one command without disturbance."""
    params = parameters(step.craft, step.physics.dt_s / step.physics.substeps)
    for _ in range(steps):
        state = step(state, command, params, torch.zeros(9, state.shape[1]))
    return state


def bullet(craft: Craft = CRAFT, num: int = 1, scene: AirEffects = STILL, dt_s: float = 0.01) -> BulletStep:
    return BulletStep(craft, QuadPhysics(dt_s=dt_s, substeps=scene.substeps(dt_s)), num, scene)


def test_free_fall_is_bullets_own_sum() -> None:
    """Half a second at 300 Hz, velocities first: -g dt^2 k (k + 1) / 2 with k = 150, which is -1.234425 m."""
    state = flown(bullet(), start(1), torch.zeros(4, 1), 50)
    assert float(state[2]) == pytest.approx(-1.234425, abs=1e-6)
    assert float(state[9]) == pytest.approx(-0.5 * GRAVITY_M_S2, abs=1e-5)
    assert state[[0, 1, 7, 8]].abs().max() == 0.0


@pytest.mark.parametrize("name", ["cf2x_l2f", "cf21", "x500"])
def test_at_hover_speed_it_stays(name: str) -> None:
    """Thrust equals weight: no drift in two seconds, so Bullet has the right mass."""
    craft = load_craft(name)
    state = start(1)
    state[ROTOR] = craft.hover_speed
    after = flown(bullet(craft), state, torch.full((4, 1), craft.hover_speed), 200)
    assert after[POS].abs().max() < 1e-4
    assert after[RATE].abs().max() < 1e-6


def test_yaw_turns_against_the_faster_rotors() -> None:
    """Rotors whose drag pushes the body to the right are faster: it yaws to the right, by torque over
    inertia.
    """
    craft = load_craft("cf2x_gym")  # no lag
    speeds = craft.hover_speed * torch.tensor([[1.01], [0.99], [1.01], [0.99]])
    state = start(1)
    state[ROTOR] = speeds
    after = flown(bullet(craft), state, speeds, 10)
    thrust = (craft.thrust_n[2] * speeds**2)[:, 0]
    torque_nm = craft.torque_per_thrust_m * float((torch.tensor(craft.yaw_sign) * thrust).sum())
    assert torque_nm < 0.0
    assert float(after[12]) == pytest.approx(0.1 * torque_nm / craft.inertia_kg_m2[2], rel=1e-4)


def tumble(num: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """(states, external, unit numbers): any attitude up to 80 degrees, moving, turning, pushed, in wind."""
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(30, num, generator=generator)
    state = start(num)
    state[QUAT] = tilted(unit[0:3].clamp(1e-6, 1 - 1e-6), 1.4)
    state[VEL], state[RATE] = 2.0 * unit[3:6] - 1.0, 6.0 * unit[6:9] - 3.0
    state[ROTOR] = CRAFT.hover_speed * (0.95 + 0.1 * unit[9:13])
    external = torch.zeros(9, num)
    external[FORCE], external[TORQUE] = 0.02 * unit[13:16], 1e-5 * unit[16:19]
    external[WIND] = 2.0 * unit[19:22] - 1.0
    return state, external, 2.0 * unit[21:30] - 1.0


def apart_m(craft: Craft, rate_hz: float) -> float:
    """Largest distance between PyBullet and Runge-Kutta over half a second of rolling, with 20 %
    randomisation.
    """
    num, dt_s = 8, 0.01
    state, external, unit = tumble(num, seed=4)
    scene = replace(STILL, rate_hz=rate_hz)
    physics = QuadPhysics(dt_s=dt_s, substeps=scene.substeps(dt_s), wind=True)
    spread = Spread(0.2, 0.2, 0.2, 0.2, 0.2)
    away = BulletStep(craft, physics, num, scene)
    home = make_step(craft, replace(physics, integrator="rk4", substeps=4))
    params = [parameters(craft, dt_s / substeps, num, spread, unit) for substeps in (physics.substeps, 4)]
    there, here, most = state, state, 0.0
    for i in range(50):
        side = 0.01 if (i // 10) % 2 else -0.01  # rolls to one side, then to the other
        command = (craft.hover_speed + side * torch.tensor([[-1.0], [-1.0], [1.0], [1.0]])).expand(4, num)
        there, here = away(there, command, params[0], external), home(here, command, params[1], external)
        most = max(most, float((there[POS] - here[POS]).norm(dim=0).max()))
    away.world.close()
    return most


@pytest.mark.parametrize("name", ["cf2x_l2f", "cf2x_gym", "racer5"])
def test_the_same_flight_as_in_quad(name: str) -> None:
    """Every term of the model in both engines, half a second of rolling: they differ by less than a
    centimetre.
    """
    assert apart_m(load_craft(name), 500.0) < 1e-2


def test_difference_of_engines_is_first_order() -> None:
    """First order: twice the rate, half the distance, here to below 4 mm."""
    coarse, fine = (apart_m(load_craft("cf21"), rate_hz) for rate_hz in (500.0, 1000.0))
    assert fine < 4e-3
    assert 1.7 < coarse / fine < 2.3


def test_rotors_momentum_is_there() -> None:
    """Rotors with equal spin, thrust in balance, rolling at 1 rad/s: angular momentum h causes a pitch torque
    w h / J.
    """
    craft = replace(CRAFT, rotor_inertia_kg_m2=2e-8, yaw_sign=(1.0, 1.0, 1.0, 1.0), torque_per_thrust_m=1e-9)
    state = start(1)
    state[ROTOR], state[10] = craft.hover_speed, 1.0
    after = flown(bullet(craft, dt_s=0.001, scene=replace(STILL, rate_hz=1000.0)), state, state[ROTOR], 1)
    momentum = -2e-8 * 4.0 * craft.hover_speed * craft.max_rpm * 2.0 * math.pi / 60.0
    assert float(after[11]) == pytest.approx(1e-3 * momentum / craft.inertia_kg_m2[1], rel=1e-3)


def test_torque_free_tumbling_keeps_its_momentum() -> None:
    """Euler's equations: w x J w changes the rates, angular momentum in the world is constant."""
    craft = replace(load_craft("x500"), inertia_kg_m2=(0.02, 0.03, 0.04))
    world = BulletWorld(craft, 1, 1.0 / 2000.0, floor_m=None)
    motion = Motion.at_rest(np.zeros((3, 1)))._replace(rate_rad_s=np.array([[1.0], [2.0], [0.5]]))
    world.place(motion)
    inertia = np.array(craft.inertia_kg_m2)
    before = inertia * motion.rate_rad_s[:, 0]
    for _ in range(1000):
        world.step(np.zeros((3, 1)), np.zeros((3, 1)))
    after = world.motion()
    momentum = after.turn[:, :, 0] @ (inertia * after.rate_rad_s[:, 0])
    np.testing.assert_allclose(momentum, before, atol=2e-3 * np.linalg.norm(before))
    assert np.abs(after.rate_rad_s - motion.rate_rad_s).max() > 0.1


def test_fallen_drone_rests_on_the_floor() -> None:
    """Rotors off, from 30 cm, tilted: it rests at the height of its hull and is never below."""
    scene = AirEffects(effects=(), height_m=0.3)
    step = bullet(scene=scene)
    state = start(1)
    state[QUAT] = torch.tensor([[0.98], [0.199], [0.0], [0.0]]) / 1.0001
    params = parameters(CRAFT, 0.01 / step.physics.substeps)
    half_m, lowest = 0.5 * hull(CRAFT)[1], 0.0
    for _ in range(200):
        state = step(state, torch.zeros(4, 1), params, NOTHING)
        lowest = min(lowest, float(state[2]))
    assert lowest > -0.3 + 0.5 * half_m
    assert float(state[2]) == pytest.approx(-0.3 + half_m, abs=2e-3)
    assert state[7:13].abs().max() < 1e-2
    assert step.world.touching().all()


def test_only_drones_of_one_arena_meet() -> None:
    """Head on in one world they stop each other; in two worlds they pass."""
    toward = Motion.of(
        np.array([[-0.2, 0.2], [0.0, 0.0], [1.0, 1.0]]),
        np.array([[1.0] * 2, *[[0.0] * 2] * 3]),
        np.array([[1.0, -1.0], [0.0] * 2, [0.0] * 2]),
        np.zeros((3, 2)),
    )
    lift = np.array([[0.0] * 2, [0.0] * 2, [CRAFT.mass_kg * GRAVITY_M_S2] * 2])
    ends = []
    for per_arena in (1, 2):
        world = BulletWorld(CRAFT, 2, 1.0 / 240.0, per_arena=per_arena)
        world.place(toward)
        for _ in range(96):
            world.step(lift, np.zeros((3, 2)))
        ends.append(world.motion().position_m[0])
    np.testing.assert_allclose(ends[0], [0.2, -0.2], atol=1e-6)
    assert ends[1][0] < -0.05 < 0.05 < ends[1][1]


def test_a_replaced_drone_starts_anew_and_the_others_go_on() -> None:
    """A column that is set from outside is the drone's position from then on."""
    step = bullet(num=2)
    state = flown(step, start(2), torch.zeros(4, 2), 10)
    state[:, 1] = start(1)[:, 0]
    after = flown(step, state, torch.zeros(4, 2), 10)
    assert float(after[2, 1]) == pytest.approx(-GRAVITY_M_S2 * 30 * 31 / 2 / 300**2, abs=1e-6)
    assert float(after[2, 0]) == pytest.approx(-GRAVITY_M_S2 * 60 * 61 / 2 / 300**2, abs=1e-6)


def test_flights_are_those_of_quad_with_another_step() -> None:
    """Same seed: equal starts, disturbances, drones and sensor noise; a controller holds equally many in
    both.
    """
    task, given = HoverTask(max_steps=60, hold_s=0.1), {"spread": Spread(mass=0.2)}
    home = Flights(CRAFT, task, FlightSenses(), 8, 3, gradient=False, eager=True, **given)
    away = bullet_flights(CRAFT, task, FlightSenses(), 8, 3, replace(STILL, rate_hz=1000.0), **given)
    for name in ("state", "external", "obs"):
        assert getattr(home, name).equal(getattr(away, name))
    assert home.params[0].equal(away.params[0])
    trials = [fly(flights, controller_pilot("pid", CRAFT, task.dt_s, 8)) for flights in (home, away)]
    assert trials[0].left.equal(trials[1].left)
    apart = (trials[0].position_m - trials[1].position_m).norm(dim=1).nan_to_num()
    assert 0.0 < apart.max() < 5e-3


def test_thrust_and_rates_fly_here_too() -> None:
    """The rate controller runs in every substep of PyBullet, as in `quad`: equal flights to 1 cm."""
    task, level = HoverTask(max_steps=60, hold_s=0.1), CommandLevel("rates")
    home = Flights(CRAFT, task, FlightSenses(), 8, 3, gradient=False, eager=True, level=level)
    away = bullet_flights(CRAFT, task, FlightSenses(), 8, 3, replace(STILL, rate_hz=200.0), level=level)
    trials = [fly(flights, controller_pilot("pid", CRAFT, task.dt_s, 8, "rates")) for flights in (home, away)]
    assert trials[0].left.equal(trials[1].left)
    apart = (trials[0].position_m - trials[1].position_m).norm(dim=1).nan_to_num()
    assert 0.0 < apart.max() < 1e-2


def test_gusts_blow_here_too() -> None:
    """Same seed, rotors at hover for 0.4 s: gusts of 1.5 m/s displace every drone as in `quad`."""
    craft, task = load_craft("cf21"), HoverTask()

    def ends(gust_m_s: float) -> list[Tensor]:
        given = (craft, task, FlightSenses(noise=False), 4, 1)
        real = Realism(gust_m_s=gust_m_s)
        made = [
            Flights(*given, realism=real, gradient=False, eager=True),
            bullet_flights(*given, replace(STILL, rate_hz=1000.0), realism=real),
        ]
        for _ in range(40):
            for flights in made:
                flights.advance(torch.full((4, 4), 2.0 * craft.hover_speed - 1.0))
        return [flights.state[POS] for flights in made]

    (home, away), (home_calm, away_calm) = ends(1.5), ends(0.0)
    assert (home - home_calm).norm(dim=0).min() > 0.02
    assert (away - away_calm - home + home_calm).abs().max() < 2e-3


def test_mistakes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid commands, impossible scenes, worlds that do not divide by workers, no PyBullet."""
    with pytest.raises(EnvError, match="not finite"):
        flown(bullet(), start(1), torch.full((4, 1), torch.nan), 1)
    with pytest.raises(UnknownNameError, match="downwash"):
        bullet(scene=AirEffects(effects=("downwsh",)))
    for wrong in ({"height_m": 0.0}, {"rate_hz": 10.0}, {"above_m": -1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            bullet(scene=AirEffects(**wrong))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="multiple"):
        BulletWorld(CRAFT, 3, 1.0 / 240.0, per_arena=2)
    monkeypatch.setitem(sys.modules, "pybullet", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'robo-rl\[pybullet\]'"):
        load_pybullet()
