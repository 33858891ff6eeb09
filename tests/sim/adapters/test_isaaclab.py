"""The adapter against a stand-in with the interface of an Isaac Lab 3 task: groups, reused buffers,
extras.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict

from robo_rl.core.errors import ConfigError, EnvError, MissingDependencyError
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from sim.adapters.isaaclab.vec_env import IsaacLabVecEnv
from sim.registry import make_env
from sim.vec.conformance import check_vec_env

N, LIMIT = 3, 9
FREE = Box(-np.inf, np.inf, (2,))


class Lab:
    """A point in the plane, moved by its actions; it succeeds at x > 1.5, and time runs out after 9 steps."""

    def __init__(self, compute_final_obs: bool = True, is_finite_horizon: bool = False, n: int = N) -> None:
        self.cfg = SimpleNamespace(compute_final_obs=compute_final_obs, is_finite_horizon=is_finite_horizon)
        self.num_envs, self.device, self.max_episode_length, self.step_dt = n, "cpu", LIMIT, 0.05
        critic = Dict({"place": Box(-np.inf, np.inf, (2,)), "eye": Box(0, 255, (4, 4, 3), np.uint8)})
        self.single_observation_space = Dict({"policy": Box(-np.inf, np.inf, (2,)), "critic": critic})
        self.single_action_space = FREE
        self.extras: dict[str, Any] = {}
        self._place = torch.zeros(n, 2)
        self._age = torch.zeros(n, dtype=torch.long)
        self._reward, self._done, self._late = torch.zeros(n), torch.zeros(n).bool(), torch.zeros(n).bool()
        self._groups = {
            "policy": torch.zeros(n, 2),
            "critic": {"place": torch.zeros(n, 2), "eye": torch.zeros(0)},
        }
        self.termination_manager = SimpleNamespace(
            active_terms=["time_out", "there"], get_term=lambda _: self._done
        )
        self.seed: int | None = None
        self.closed = False

    @property
    def unwrapped(self) -> Lab:
        return self

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seed = seed
        self._place.zero_()
        self._age.zero_()
        return self._observe(), self.extras

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        assert bool((action.abs() <= 1.0).all())
        self._place += action
        self._age += 1
        torch.gt(self._place[:, 0], 1.5, out=self._done)
        torch.ge(self._age, LIMIT, out=self._late)
        self._reward[:] = -self._place.norm(dim=1)
        ended = self._done | self._late
        if bool(ended.any()):
            if self.cfg.compute_final_obs:
                self.extras["final_obs"] = self._copy(self._observe())
            self._place[ended] = 0.0
            self._age[ended] = 0
        return self._observe(), self._reward, self._done, self._late, self.extras

    def render(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True

    def _observe(self) -> Any:
        self._groups["policy"][:] = self._place
        self._groups["critic"]["place"][:] = 10.0 * self._place
        self._groups["critic"]["eye"] = (self._age % 256).byte().reshape(-1, 1, 1, 1).expand(-1, 4, 4, 3)
        return self._groups

    def _copy(self, groups: Any) -> Any:
        return {k: self._copy(v) if isinstance(v, dict) else v.clone() for k, v in groups.items()}


def adapt(success: str | None = "there", **kwargs: Any) -> IsaacLabVecEnv:
    return IsaacLabVecEnv(Lab(**kwargs), "isaaclab/stand-in", success=success)


def test_contract_except_restore() -> None:
    """Every clause of the conformance test that Isaac Lab can fulfil: shapes, new tensors, ends, final
    observations, order of seeds, repetition (the stand-in starts all episodes alike).
    """
    env = adapt()
    assert isinstance(env, VecEnv)
    with pytest.raises(EnvError, match="cannot return to a saved state"):
        check_vec_env(env, steps=40)
    assert env.metadata["seeded"] is False


def test_its_spec_is_read_from_the_task() -> None:
    """Groups, images, the rate, and limits if the task has none."""
    spec = adapt().spec
    assert {key: each.shape for key, each in spec.obs.items()} == {
        "state": (2,), "critic": (2,), "image.eye": (4, 4, 3),
    }  # fmt: skip
    assert (spec.max_episode_steps, spec.control_hz) == (LIMIT, 20.0)
    assert (spec.action.low, spec.action.high) == ((-1.0, -1.0), (1.0, 1.0))


@pytest.mark.parametrize("finite", [False, True])
def test_endings_keep_their_kind(finite: bool) -> None:
    """Lane 0 succeeds in its second step, lane 1 times out: truncated, unless the time is part of the task;
    final_obs is the last observation, obs the one after the reset.
    """
    env = adapt(is_finite_horizon=finite)
    env.reset(EpisodeSeeds("endings"))
    action = torch.tensor([[1.0, 0.0], [0.1, 0.0], [0.0, 0.2]])
    for step in range(1, LIMIT + 1):
        obs, _, terminated, truncated, info = env.step(action)
        if step == 2:
            assert terminated.tolist() == [True, False, False]
            assert info["success"].tolist() == [True, False, False]
            assert info["final_obs"]["state"][0].tolist() == [2.0, 0.0]
            assert info["final_obs"]["critic"][0].tolist() == [20.0, 0.0]
            assert obs["state"][0].tolist() == [0.0, 0.0]
            assert info["final_obs"]["state"][1].tolist() == pytest.approx([0.2, 0.0])
    assert terminated.tolist() == [False, finite, finite]
    assert truncated.tolist() == [False, not finite, not finite]
    assert info["final_obs"]["state"][2].tolist() == pytest.approx([0.0, 1.8])
    assert not info["success"].any()


def test_actions_beyond_the_limits_act_like_the_limits() -> None:
    """The stand-in refuses actions outside its limits; non-finite ones are refused here."""
    env = adapt()
    env.reset(EpisodeSeeds("limits"))
    obs, *_ = env.step(torch.tensor([[-7.0, 0.5]] * N))
    assert obs["state"][0].tolist() == [-1.0, 0.5]
    with pytest.raises(EnvError, match="not finite"):
        env.step(torch.full((N, 2), torch.nan))
    with pytest.raises(EnvError, match=r"shape \(3, 2\), found \(3, 1\)"):
        env.step(torch.zeros(N, 1))


def test_mistakes_are_refused() -> None:
    """No final observations, a name for success that does not exist, no pictures, no reset."""
    with pytest.raises(ConfigError, match="Set compute_final_obs=True"):
        adapt(compute_final_obs=False)
    with pytest.raises(ConfigError, match=r"no termination 'victory'.*it has time_out, there"):
        adapt(success="victory")
    with pytest.raises(EnvError, match="render_mode"):
        adapt().render()
    with pytest.raises(EnvError, match="must be reset"):
        adapt().step(torch.zeros(N, 2))


def test_missing_isaac_lab_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that users give."""
    monkeypatch.setitem(sys.modules, "isaaclab_tasks", None)
    with pytest.raises(
        MissingDependencyError, match=r"need Isaac Lab 3 .*'isaaclab_tasks' cannot be imported"
    ):
        make_env("isaaclab/Isaac-Lift-Cube-Franka-v0", 2)


def test_a_task_is_made_by_isaac_labs_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configuration, presets and launch as in Isaac Lab's own scripts; closing the environment ends the
    launch.
    """
    events: list[Any] = []

    def parse_env_cfg(task_name: str, device: str = "cuda:0", num_envs: int | None = None) -> Any:
        return SimpleNamespace(task=task_name, device=device, num_envs=num_envs)

    def resolve_presets(cfg: Any, selected: set[str] | None = None) -> Any:
        events.append(selected)
        return cfg

    @contextmanager
    def launch_simulation(env_cfg: Any, launcher_args: Any = None) -> Any:
        events.append(env_cfg.compute_final_obs)
        yield
        events.append("ended")

    package, utils = ModuleType("isaaclab_tasks"), ModuleType("isaaclab_tasks.utils")
    vars(utils).update(
        parse_env_cfg=parse_env_cfg, resolve_presets=resolve_presets, launch_simulation=launch_simulation
    )
    monkeypatch.setitem(sys.modules, "isaaclab_tasks", package)
    monkeypatch.setitem(sys.modules, "isaaclab_tasks.utils", utils)
    monkeypatch.setitem(gymnasium.registry, "Isaac-Stand-In-v0", object())
    made = {}

    def make(task: str, cfg: Any) -> Lab:
        made[task] = Lab(n=cfg.num_envs)
        return made[task]

    monkeypatch.setattr(gymnasium, "make", make)
    env = make_env("isaaclab/Isaac-Stand-In-v0", 4, device="cpu", presets="newton_mjwarp", success="there")
    assert env.num_envs == 4
    assert env.spec.name == "isaaclab/Isaac-Stand-In-v0"
    assert events == [{"newton_mjwarp"}, True]
    env.close()
    assert made["Isaac-Stand-In-v0"].closed
    assert events[-1] == "ended"
    with pytest.raises(ConfigError, match="no task 'Isaac-Nothing-v0'"):
        make_env("isaaclab/Isaac-Nothing-v0", 4)
