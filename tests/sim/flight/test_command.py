"""Thrust and body rates as command level: their meaning in simulation and over a link."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robo_rl.conf.fly import FlyConfig
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.flight.level import UNITS
from robo_rl.flight.fly.learners import new_policy
from robo_rl.flight.fly.setup import FlightSetup, check_own
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, RATE
from sim.flight.command import CommandLevel, column, make_command, motors_hover
from sim.flight.control.controllers import make_controller
from sim.flight.flights import Flights
from sim.flight.realism import Realism
from sim.flight.setting import FlightOptions
from sim.flight.trial import controller_pilot, fly
from sim.flight.vec_env import QuadVecEnv
from sim.registry import make_env
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.names import TASKS
from sim.tasks.flight.observation import FlightSenses
from sim.vec.conformance import check_vec_env

CRAFT, RATES = load_craft("cf2x_l2f"), CommandLevel("rates")
AT_REST = HoverTask(at_goal=1.0, force_std=0.0, torque_std=0.0)


def resting(num: int = 1, realism: Realism | None = None) -> Flights:
    senses = FlightSenses(noise=False)
    return Flights(CRAFT, AT_REST, senses, num, 0, realism=realism, gradient=False, eager=True, level=RATES)


def flown(flights: Flights, thrust: float, rates: list[float], steps: int) -> Tensor:
    """The state after so many steps of this command, in the units of the contract."""
    wanted = torch.tensor([[thrust, *rates]]).T.expand(4, flights.num)
    for _ in range(steps):
        flights.advance(flights.command.normalized(wanted))
    return flights.state


def test_one_weight_hovers_and_one_and_a_half_climb_with_half_g() -> None:
    """Thrust in weights. 1: it hovers. 1.5: v = g t / 2 once the rotors have accelerated."""
    assert flown(resting(), 1.0, [0.0, 0.0, 0.0], 100)[POS].abs().max() < 1e-3
    up = resting()
    fast = [float(flown(up, 1.5, [0.0, 0.0, 0.0], steps)[9, 0]) for steps in (20, 10)]
    assert fast[1] - fast[0] == pytest.approx(0.1 * 0.5 * 9.81, rel=0.02)


def test_body_rates_are_followed_within_a_tenth_of_a_second() -> None:
    """About every axis, with its sign: FLU, in rad/s."""
    for axis, asked in ((0, 1.5), (1, -1.5), (2, 1.0)):
        rates = [0.0, 0.0, 0.0]
        rates[axis] = asked
        found = flown(resting(), 1.0, rates, 15 if axis < 2 else 60)[RATE, 0].tolist()
        assert found == pytest.approx(rates, abs=0.15)


def test_the_rate_loop_sees_every_substep_not_every_command() -> None:
    """One constant command stops a rotation: the rate loop runs several times per control step."""
    command, flights = make_command(RATES, CRAFT, 0.005), resting()
    flights.state[10] = 3.0
    hover = column(command.hover, flights.state)
    at_once = command.rotors(flights.state, hover)
    flights.advance(hover)
    assert 0.0 < float(flights.state[10, 0]) < 3.0
    assert not torch.allclose(command.rotors(flights.state, hover), at_once, atol=1e-3)


def test_latency_holds_the_hovering_command_first() -> None:
    """The queue initially holds a thrust of one weight and no rates, not four equal numbers."""
    late = resting(realism=Realism(latency_steps=3))
    state = flown(late, 2.0, [0.0, 0.0, 0.0], 3)
    assert abs(float(state[9, 0])) < 1e-3
    assert float(flown(late, 2.0, [0.0, 0.0, 0.0], 10)[9, 0]) > 0.2


def test_gradients_go_through_the_rate_loop() -> None:
    """First-order learning needs gradients of every entry of the action."""
    flights = Flights(CRAFT, HoverTask(), FlightSenses(), 8, 0, eager=True, level=RATES)
    action = column(flights.command.hover, flights.obs).repeat(1, 8).requires_grad_()
    for _ in range(3):
        cost, _ = flights.step(action)
    (gradient,) = torch.autograd.grad(cost.sum(), action)
    assert (gradient.abs().sum(1) > 1e-4).all()


def test_contract_has_level_units_and_bounds() -> None:
    """Thrust from 0 to all that the craft has, in weights; the name finds the environment again."""
    spec = make_env("quad/hover:level=rates,rate_rad_s=4", 1).spec
    assert spec.name == "quad/hover:level=rates,rate_rad_s=4"
    assert spec.action.unit == UNITS["rates"]
    assert spec.action.low == (0.0, -4.0, -4.0, -2.0)
    assert spec.action.high == pytest.approx((CRAFT.thrust_to_weight, 4.0, 4.0, 2.0))
    assert spec == FlightSetup.of(FlyConfig(level="rates", rate_rad_s=4)).spec()
    assert make_env("quad/hover", 1).spec.action.unit == UNITS["motors"]


@pytest.mark.parametrize("task", TASKS)
def test_environment_contract(task: str) -> None:
    check_vec_env(QuadVecEnv(task, 2, FlightOptions(level="rates"), max_episode_steps=7), steps=18)


def test_the_environment_takes_weights_and_rates() -> None:
    """As the contract says: not numbers in [-1, 1]."""
    env = QuadVecEnv("hover", 1, FlightOptions(level="rates"))
    env.reset(iter(range(9)))
    env.restore(env.snapshot() | {"state": resting().state})
    for _ in range(20):
        env.step(torch.tensor([[1.0, 1.5, 0.0, 0.0]]))
    assert float(env.measured()[10, 0]) == pytest.approx(1.5, abs=0.2)


@pytest.mark.parametrize(("name", "most_m"), [("pid", 0.06), ("geometric", 0.2)])
def test_controllers_hover_over_a_link(name: str, most_m: float) -> None:
    """20 ms delay, with disturbance and noise, from calm starts: the PID's integral compensates the push."""
    task = HoverTask(start_tilt_rad=0.3, start_speed_m_s=0.2, force_std=0.02)
    flights = Flights(
        CRAFT,
        task,
        FlightSenses(),
        16,
        1,
        realism=Realism(latency_steps=2),
        gradient=False,
        eager=True,
        level=RATES,
    )
    trial = fly(flights, controller_pilot(name, CRAFT, task.dt_s, 16, "rates"))
    assert not trial.left.any()
    assert float(trial.error_m.mean()) < most_m
    assert trial.rotor.min() > 0.0  # what the rotors did, not what was asked for
    assert 0.0 < trial.action_change < 0.1


def test_default_latency_of_a_link() -> None:
    assert FlightSetup.of(FlyConfig(level="rates")).realism.latency_steps == 2
    assert FlightSetup.of(FlyConfig(level="rates", latency_s=0.0)).realism.latency_steps == 0
    assert FlightSetup.of(FlyConfig()).realism.latency_steps == 0


def test_a_new_policy_hovers_before_it_has_learned() -> None:
    """Its first action is one weight, no rates; an LQR law of motors is no start for it."""
    config = FlyConfig(level="rates")
    setting = FlightSetup.of(config)
    policy = new_policy(config, setting, 0)
    action = policy.columns(resting().obs)[:, 0]
    torch.testing.assert_close(action, torch.tensor(setting.command().hover), atol=0.05, rtol=0.0)
    with pytest.raises(ConfigError, match=r"level=motors.*found task=hover, level=rates"):
        new_policy(FlyConfig(level="rates", start="lqr"), setting, 0)


def test_mistakes_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'rates'"):
        make_env("quad/hover:level=rate", 1)
    with pytest.raises(ConfigError, match="has no rates"):
        make_env("quad/hover:rate_rad_s=4", 1)
    with pytest.raises(ConfigError, match="has no rates"):
        check_own(FlyConfig(rate_rad_s=4.0))
    with pytest.raises(ConfigError, match="at most 34 rad/s"):
        make_env("quad/hover:level=rates,rate_rad_s=99", 1)
    with pytest.raises(
        ConfigError, match="'lqr' commands motors only; for level=rates choose pid, geometric"
    ):
        make_controller("lqr", CRAFT, 0.01, level="rates")


def test_motors_hover_as_before() -> None:
    assert make_command(CommandLevel(), CRAFT, 0.01).hover == motors_hover(CRAFT)
    assert motors_hover(CRAFT)[0] == 2.0 * CRAFT.hover_speed - 1.0
