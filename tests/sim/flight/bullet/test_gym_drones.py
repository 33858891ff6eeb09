"""Environments compatible with gym-pybullet-drones: spaces, rewards, endings and actions."""

from __future__ import annotations

import enum
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import sim.gym_drones
from robo_rl.core.errors import ConfigError, EnvError

pytest.importorskip("pybullet")


class ActionType(enum.Enum):
    """As that package has it."""

    ONE_D_RPM = "one_d_rpm"


def made(env_id: str = "robo_rl/HoverAviary-v0", **options: Any) -> Any:
    assert env_id in sim.gym_drones.ENVS
    return gymnasium.make(env_id, disable_env_checker=True, **options).unwrapped


def flown(env: Any, action: Any, most: int = 1000) -> tuple[np.ndarray, float, int]:
    """(last observation, return, steps) of one episode of one action."""
    obs, _ = env.reset(seed=0)
    total, count = 0.0, 0
    while count < most:
        obs, reward, terminated, truncated, _ = env.step(np.full(env.action_space.shape, action, np.float32))
        total, count = total + reward, count + 1
        if terminated or truncated:
            break
    return obs, total, count


@pytest.mark.parametrize(
    ("env_id", "options", "obs", "act"),
    [
        ("robo_rl/HoverAviary-v0", {}, (1, 12 + 15 * 4), (1, 4)),
        ("robo_rl/HoverAviary-v0", {"act": "one_d_rpm"}, (1, 12 + 15), (1, 1)),
        ("robo_rl/HoverAviary-v0", {"act": "pid"}, (1, 12 + 15 * 3), (1, 3)),
        ("robo_rl/HoverAviary-v0", {"act": "vel"}, (1, 12 + 15 * 4), (1, 4)),
        ("robo_rl/HoverAviary-v0", {"act": "one_d_pid"}, (1, 12 + 15), (1, 1)),
        ("robo_rl/HoverAviary-v0", {"obs": "rgb", "act": "one_d_rpm"}, (1, 48, 64, 4), (1, 1)),
        ("robo_rl/MultiHoverAviary-v0", {"effects": ("ground", "downwash", "drag")}, (2, 72), (2, 4)),
        ("robo_rl/VelocityAviary-v0", {"num_drones": 2}, (2, 20), (2, 4)),
    ],
)
def test_spaces_and_contract(
    env_id: str, options: dict[str, Any], obs: tuple[int, ...], act: tuple[int, ...]
) -> None:
    """Gymnasium's checker accepts them; what it warns of is that positions have no bound, as in that
    package.
    """
    env = made(env_id, **options)
    assert env.observation_space.shape == obs
    assert env.action_space.shape == act
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*infinity.*|.*We recommend you to use a symmetric.*", UserWarning)
        check_env(env, skip_render_check=True)


def test_an_episode_of_doing_nothing() -> None:
    """At 11 cm, 0.887 m from the goal: 2 - 0.887^4 each step; 8 s are over after 242 of them, as in that
    package.
    """
    env = made(act=ActionType.ONE_D_RPM)
    obs, _ = env.reset()
    height_m = float(obs[0, 2])
    last, total, steps = flown(env, 0.0)
    assert steps == 242
    assert total == pytest.approx(242 * (2.0 - (1.0 - height_m) ** 4), rel=1e-4)
    assert last[0, 2] == pytest.approx(height_m, abs=1e-4)
    assert (last[0, 12:] == 0.0).all()


def test_actions_are_remembered_oldest_first() -> None:
    """The newest action is last; fifteen are stored."""
    env = made(act="one_d_rpm")
    env.reset()
    for value in np.linspace(-1.0, 0.9, 20, dtype=np.float32):
        obs, *_ = env.step(np.array([[value]]))
    np.testing.assert_allclose(obs[0, 12:], np.linspace(-1.0, 0.9, 20)[5:], atol=1e-6)


def test_rotor_actions_are_five_per_cent_of_hovering() -> None:
    """An action of 1: thrust is 1.05^2 of the weight, so it climbs with 0.1025 g."""
    env = made(act="rpm")
    env.reset()
    obs, *_ = env.step(np.ones((1, 4), np.float32))
    assert obs[0, 8] == pytest.approx((1.05**2 - 1.0) * 9.81 / 30.0, rel=1e-3)


def test_goals_for_the_controller() -> None:
    """pid reaches the point, vel climbs with 3 % of 30 km/h, one_d_pid climbs; leaving the height limit ends
    the episode.
    """
    obs, total, _ = flown(made(act="pid"), [0.0, 0.0, 1.0])
    assert obs[0, :3] == pytest.approx([0.0, 0.0, 1.0], abs=0.01)
    assert total > 470.0
    obs, _, steps = flown(made(act="vel", initial_xyzs=np.array([[0.0, 0.0, 1.5]])), [0.0, 0.0, 1.0, 1.0])
    assert obs[0, 8] == pytest.approx(0.25, abs=0.01)
    assert obs[0, 2] > 2.0
    assert steps < 242
    obs, *_ = flown(made(act="one_d_pid"), 1.0, most=60)
    assert obs[0, 2] > 0.2


def test_two_drones_keep_to_their_own_goals() -> None:
    """Rewards add up: at rest at the start each is 1 / (i + 1) m below its goal."""
    env = made("robo_rl/MultiHoverAviary-v0", act="one_d_rpm")
    env.reset()
    _, reward, *_ = env.step(np.zeros((2, 1), np.float32))
    assert reward == pytest.approx((2.0 - 1.0) + (2.0 - 0.5**4), rel=1e-3)


@pytest.mark.parametrize(
    ("effect", "places", "steps"), [("ground", [0.08], 15), ("downwash", [1.0, 1.5], 5), ("drag", [1.0], 5)]
)
def test_effects_act_on_crafts_without_coefficients(effect: str, places: list[float], steps: int) -> None:
    """cf2x_l2f has none: the ground lifts, the drone above pushes down, drag slows the fall at the start."""
    starts = np.array([[0.0, 0.0, height] for height in places])
    env_id = f"robo_rl/{'Multi' if len(starts) > 1 else ''}HoverAviary-v0"
    climbs = []  # velocities along z [m/s]
    for effects in ((), (effect,)):
        env = made(env_id, act="rpm", craft="cf2x_l2f", effects=effects, initial_xyzs=starts)
        obs, _, _ = flown(env, 1.0, most=steps)
        env.close()
        climbs.append(float(obs[0, 8]))
    assert climbs[0] < 0.0 or effect == "ground"
    assert (climbs[1] < climbs[0]) if effect == "downwash" else (climbs[1] > climbs[0])


def test_pictures_and_mistakes() -> None:
    """render gives an image on request; mistakes are reported with a remedy."""
    env = made(render_mode="rgb_array")
    env.reset()
    assert env.render().shape == (480, 640, 3)
    with pytest.raises(EnvError, match="not finite"):
        env.step(np.full((1, 4), np.nan))
    with pytest.raises(EnvError, match=r"shape \(1, 3\), and act = rpm of 1 drones takes \(1, 4\)"):
        env.step(np.zeros((1, 3)))
    with pytest.raises(ConfigError, match="one_d_rpm"):
        made(act="thrust")
    with pytest.raises(ConfigError, match="multiple"):
        made(ctrl_freq=50)
    with pytest.raises(ConfigError, match="initial_xyzs"):
        made(initial_xyzs=np.zeros((2, 3)))
    with pytest.raises(EnvError, match="reset"):
        made().step(np.zeros((1, 4)))
