"""Gymnasium environments in lanes: ends, success, values, infos, and environments of the user's own."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, EnvError, UnknownNameError
from robo_rl.core.plugins import load_plugins
from robo_rl.core.seeding import EpisodeSeeds, derive_seed
from sim.registry import make_env
from tests.sim.adapters.own_environments import Camera, Rig


def test_falling_terminates_and_the_clock_truncates() -> None:
    """Hopper without torque falls after about 50-100 steps; with a limit of 10 the time-out comes first."""
    env = make_env("gym/Hopper-v5", 2)
    env.reset(EpisodeSeeds("hopper"))
    for _ in range(300):
        _, _, terminated, truncated, info = env.step(torch.zeros(2, 3))
        if info["final_mask"].any():
            break
    assert terminated.any()
    assert not truncated.any()

    short = make_env("gym/Hopper-v5", 2, max_episode_steps=10)
    short.reset(EpisodeSeeds("hopper"))
    flags = [short.step(torch.zeros(2, 3))[2:4] for _ in range(10)]
    assert not any(terminated.any() for terminated, _ in flags)
    assert [truncated.all().item() for _, truncated in flags] == [False] * 9 + [True]


def test_values_equal_gymnasium() -> None:
    """Same seed and actions as a plain gymnasium.make: same observations, rewards and info."""
    env = make_env("gym/HalfCheetah-v5", 1)
    obs = env.reset(EpisodeSeeds("plain"))
    plain = gymnasium.make("HalfCheetah-v5")
    expected, _ = plain.reset(seed=derive_seed("plain", 0))
    rng = np.random.default_rng(0)
    for _ in range(10):
        torch.testing.assert_close(obs["state"][0].numpy(), expected.astype(np.float32), rtol=0, atol=0)
        action = rng.uniform(-1, 1, 6).astype(np.float32)
        expected, reward, *_, plain_info = plain.step(action)
        obs, our_reward, _, _, info = env.step(torch.from_numpy(action)[None])
        assert our_reward.item() == np.float32(reward)
        assert info["x_velocity"].item() == np.float32(plain_info["x_velocity"])
    plain.close()


def test_spec_is_read_from_the_environment() -> None:
    """Rate, limits and horizon go into datasets and bundles."""
    spec = make_env("gym/Hopper-v5", 1).spec
    assert spec.name == "gym/Hopper-v5"
    assert spec.obs["state"].shape == (11,)
    assert (spec.action.low, spec.action.high) == ((-1.0,) * 3, (1.0,) * 3)
    assert (spec.max_episode_steps, spec.control_hz) == (1000, 125.0)


class Passing(Camera):
    """Solved in step 2 only, and ended by the clock."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return (*rest, {"is_success": self.t == 2})


@pytest.mark.parametrize("registered", [Passing], indirect=True)
def test_one_solved_step_makes_an_episode_a_success(registered: str) -> None:
    """As docs/own-robot-task-engine.md says; the next episode starts without it."""
    with closing(make_env(registered, 1)) as env:
        env.reset(EpisodeSeeds("passing"))
        steps = [env.step(torch.zeros(1, 1)) for _ in range(9)]
    assert [bool(info["success"]) for *_, info in steps] == [False, *[True] * 7, False]
    assert [bool(truncated) for _, _, _, truncated, _ in steps] == [*[False] * 7, True, False]


@pytest.mark.parametrize(("registered", "reports"), [(Passing, 1.0), (Rig, 0.0)], indirect=["registered"])
def test_whether_an_environment_reports_success_is_known(registered: str, reports: float) -> None:
    """Evaluations print the mean return alone where it does not."""
    with closing(make_env(registered, 1)) as env:
        env.reset(EpisodeSeeds("reports"))
        *_, info = env.step(torch.zeros(1, 1))
    assert info["reports_success"].tolist() == [reports]


class Sometimes(Rig):
    """Its info holds a distance in the first step alone."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return (*rest, {"distance": 0.5} if self.t == 1 else {})


@pytest.mark.parametrize("registered", [Sometimes], indirect=True)
def test_an_info_that_is_missing_later_is_unknown(registered: str) -> None:
    with closing(make_env(registered, 1)) as env:
        env.reset(EpisodeSeeds("sometimes"))
        found = [env.step(torch.zeros(1, 1))[-1]["distance"].item() for _ in range(2)]
    assert found[0] == 0.5
    assert math.isnan(found[1])


class Fades(Rig):
    """Its info holds a number in the first step, and something else in each later one."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return (*rest, {"distance": {1: 0.5, 2: None, 3: "far", 4: np.True_}.get(self.t, [1.0, 2.0])})


@pytest.mark.parametrize("registered", [Fades], indirect=True)
def test_an_info_that_is_no_number_later_is_unknown(registered: str) -> None:
    """A None, such as of an object that is not seen, ended the run with a TypeError."""
    with closing(make_env(registered, 1)) as env:
        env.reset(EpisodeSeeds("fades"))
        found = [env.step(torch.zeros(1, 1))[-1]["distance"].item() for _ in range(5)]
    assert found[0] == 0.5
    assert [math.isnan(each) for each in found[1:]] == [True, True, False, True]


class Broken(Rig):
    """At step 3 the wrong values; at the reset of seed 13, too."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (3,))
    in_reward = False

    def seen(self) -> Any:
        broken = self.np_random_seed == 13 or (self.t == 3 and not self.in_reward)
        return np.array([0.0, np.nan if broken else 1.0, 2.0], np.float32)

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return (obs, np.inf if self.in_reward and self.t == 3 else 1.0, *rest)


class BrokenReward(Broken):
    in_reward = True


@pytest.mark.parametrize(
    ("registered", "found"),
    [
        (Broken, r"observation at step 3 of the episode with seed 7 \(number 1 of state is nan\)"),
        (BrokenReward, r"reward at step 3 of the episode with seed 7 \(inf\)"),
    ],
    indirect=["registered"],
)
def test_a_number_that_is_not_finite_is_the_fault_of_the_environment(registered: str, found: str) -> None:
    with closing(make_env(registered, 1)) as env:
        env.reset(iter([7]))
        env.step(torch.zeros(1, 1))
        env.step(torch.zeros(1, 1))
        with pytest.raises(
            EnvError, match=f"The environment 'gym/ForATest-v0' returned a non-finite {found}"
        ):
            env.step(torch.zeros(1, 1))


@pytest.mark.parametrize("registered", [Broken], indirect=True)
def test_a_reset_that_is_not_finite_is_step_0(registered: str) -> None:
    with closing(make_env(registered, 1)) as env, pytest.raises(EnvError, match=r"step 0 .* with seed 13 "):
        env.reset(iter([13]))


def test_unknown_ids_are_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'gym/Hopper-v5'"):
        make_env("gym/Hoper-v5", 1)
    with pytest.raises(ConfigError, match="module 'not_there', which is neither installed"):
        make_env("gym/not_there:Mine-v0", 1)
    with pytest.raises(UnknownNameError, match="dense"):
        make_env("gym/Hopper-v5", 1, reward="shaped")


class Nears(gymnasium.Env[Any, Any]):
    """Pays 1 at every step, and is solved from the third step on without an end."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    reports = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        told = {"is_success": self.t >= 3} if self.reports else {}
        return np.zeros(1, np.float32), 1.0, False, False, told


class NearsUntold(Nears):
    reports = False


@pytest.fixture
def nears() -> Iterator[None]:
    for kind in (Nears, NearsUntold):
        gymnasium.register(f"{kind.__name__}-v0", kind, max_episode_steps=5)
    yield
    for kind in (Nears, NearsUntold):
        del gymnasium.registry[f"{kind.__name__}-v0"]


def test_a_sparse_reward_pays_for_success_and_ends_the_episode(nears: None) -> None:
    """A reward of 1 per step would make success, which ends the episode, the worst outcome."""
    cases: tuple[tuple[dict[str, Any], list[float], str], ...] = (
        ({}, [1.0] * 5, "truncated"),
        ({"reward": "sparse"}, [0.0, 0.0, 1.0], "terminated"),
        ({"reward": "sparse", "terminate_on_success": False}, [0.0, 0.0, 1.0, 1.0, 1.0], "truncated"),
    )
    for options, rewards, ended in cases:
        env = make_env("gym/Nears-v0", 1, **options)
        env.reset(EpisodeSeeds("nears"))
        steps = [env.step(torch.zeros(1, 1)) for _ in rewards]
        assert [reward.item() for _, reward, *_ in steps] == rewards
        _, _, terminated, truncated, info = steps[-1]
        assert (terminated.item(), truncated.item()) == (ended == "terminated", ended == "truncated")
        assert info["success"].item()
        env.close()


def test_a_sparse_reward_needs_a_report_of_success(nears: None) -> None:
    env = make_env("gym/NearsUntold-v0", 1, reward="sparse")
    env.reset(EpisodeSeeds("nears"))
    for _ in range(4):
        env.step(torch.zeros(1, 1))
    with pytest.raises(EnvError, match="none in a whole episode: its info lacks is_success and success"):
        env.step(torch.zeros(1, 1))
    env.close()


OWN = """
import gymnasium
import numpy as np


class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.full(2, action[0], np.float32), 1.0, False, False, {}


gymnasium.register("OwnForATest-v0", Own, max_episode_steps=5)
"""


@pytest.mark.parametrize("name", ["gym/OwnForATest-v0", "gym/own_env_for_a_test:OwnForATest-v0"])
def test_user_environment_runs_in_workers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered by a plugin, or by the module in the name: workers import it like the parent does."""
    (tmp_path / "own_env_for_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    if ":" not in name:
        monkeypatch.setenv("ROBO_RL_PLUGINS", "own_env_for_a_test")
        load_plugins()
    try:
        with closing(make_env(name, 2, num_workers=2)) as env:
            env.reset(EpisodeSeeds("own"))
            obs, reward, *_ = env.step(torch.full((2, 1), 0.5))
            assert obs["state"].tolist() == [[0.5, 0.5]] * 2
            assert reward.tolist() == [1.0, 1.0]
    finally:
        gymnasium.registry.pop("OwnForATest-v0", None)
        sys.modules.pop("own_env_for_a_test", None)


def test_unknown_id_error_explains_own_environments() -> None:
    with pytest.raises(UnknownNameError, match=r"gym/<module>:<id>.*ROBO_RL_PLUGINS"):
        make_env("gym/Hoper-v5", 1)


def test_a_wrong_id_of_a_users_module_suggests_the_right_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suggestion can be pasted as it is: it holds gym/ and the module."""
    (tmp_path / "own_env_for_names.py").write_text(OWN.replace("OwnForATest", "OwnForNames"))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(UnknownNameError) as caught:
            make_env("gym/own_env_for_names:Own", 1)
    finally:
        gymnasium.registry.pop("OwnForNames-v0")
        sys.modules.pop("own_env_for_names")
    assert str(caught.value).endswith("Known: gym/own_env_for_names:OwnForNames-v0.")
