"""An installed Isaac Lab 3 task behind the contract of `VecEnv`: `isaaclab/<task id>`.

Two clauses of the contract are not met. Isaac Lab has one seed for all environments, so that episode seeds
are labels only (`metadata["seeded"]` is False), and it cannot restore a state, so that `restore` is refused
and a training cannot be resumed. Tested against a stand-in with Isaac Lab 3's interface, not with Isaac Lab
(docs/engines-gpu.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError, MissingDependencyError
from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.seeding import Seeds, episode_seeds
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec
from sim.adapters.isaaclab.layout import action_spec, obs_of, obs_spec
from sim.vec.vec_env import METADATA, take_seeds

TASKS = ("Isaac-Lift-Cube-Franka-v0",)  # one of many: names are Isaac Lab's own


class IsaacLabVecEnv:
    """VecEnv of an Isaac Lab task made by `gymnasium.make` with `compute_final_obs` in its configuration.

    action_limit: limit of actions that the task leaves without one. success: the termination term that means
    success; None: no episode succeeds. Raises ConfigError for a task without final observations.
    """

    def __init__(self, env: Any, name: str, action_limit: float = 1.0, success: str | None = None) -> None:
        self._env, self._inner, self._closing = env, env.unwrapped, ExitStack()
        inner = self._inner
        if not getattr(inner.cfg, "compute_final_obs", False):
            raise ConfigError(
                f"{name} does not return final observations. Set compute_final_obs=True in its configuration."
            )
        if success is not None and success not in inner.termination_manager.active_terms:
            known = ", ".join(inner.termination_manager.active_terms)
            raise ConfigError(f"{name} has no termination '{success}' to count as success; it has {known}.")
        self._term = success
        self.num_envs, self.device = int(inner.num_envs), torch.device(inner.device)
        self.metadata: Mapping[str, Any] = {**METADATA, "seeded": False}
        self.spec = EnvSpec(
            name,
            obs_spec(inner.single_observation_space),
            action_spec(inner.single_action_space, action_limit),
            int(inner.max_episode_length),
            1.0 / float(inner.step_dt),
        )
        limits = torch.tensor([self.spec.action.low, self.spec.action.high], device=self.device)
        self._low, self._high = limits
        self._seeds: Iterator[int] | None = None
        self._seed = torch.zeros(self.num_envs, dtype=torch.int64)
        self._success = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self._pending: Tensor | None = None

    def reset(self, seeds: Seeds) -> Obs:
        """Start new episodes. The first seed seeds Isaac Lab; the others are labels only."""
        coming = episode_seeds(seeds, self.num_envs)
        self._seed = torch.tensor(take_seeds(coming, self.num_envs))
        self._seeds = coming
        self._success[:] = False
        obs, _ = self._env.reset(seed=int(self._seed[0]))
        return obs_of(obs)

    def step(self, action: Float[Tensor, "n a"]) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        if self._seeds is None:
            raise EnvError(f"{self.spec.name} must be reset before it is stepped.")
        expected = (self.num_envs, self.spec.action.dim)
        if tuple(action.shape) != expected:
            raise EnvError(
                f"{self.spec.name} takes actions of shape {expected}, found {tuple(action.shape)}."
            )
        if not bool(torch.isfinite(action).all()):
            raise EnvError(
                f"{self.spec.name} was given an action that is not finite: the policy has diverged."
            )
        self._pending = action.to(self.device, torch.float32).maximum(self._low).minimum(self._high)

    def step_wait(self) -> StepResult:
        if self._pending is None:
            raise EnvError(f"{self.spec.name}: step_wait without step_async.")
        action, self._pending = self._pending, None
        groups, reward, ended, timed_out, extras = self._env.step(action)
        # Isaac Lab writes into the same tensors at every step.
        timed_out = timed_out.clone().bool() | extras.get("time_outs", torch.zeros_like(timed_out)).bool()
        ended = ended.clone().bool()
        if getattr(self._inner.cfg, "is_finite_horizon", False):
            ended |= timed_out  # the time limit is part of the task: no value remains after it
        truncated = timed_out & ~ended
        mask = ended | truncated
        obs = obs_of(groups)
        info = self._info(mask, obs, extras)
        return obs, reward.clone().float(), ended, truncated, info

    def snapshot(self) -> dict[str, Any]:
        """An empty snapshot: Isaac Lab offers no state to restore."""
        return {}

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        """Raises EnvError: new episodes in place of the running ones would mix both in a replay."""
        raise EnvError(
            f"{self.spec.name} cannot return to a saved state, because Isaac Lab offers none: a training in "
            "it cannot be resumed. Start a new run, with an off-policy method from the networks of this one "
            "by init=."
        )

    def render(self, lane: int = 0) -> Tensor:
        picture = self._env.render()
        if picture is None:
            raise EnvError(
                f"{self.spec.name} renders no pictures: make it with render_mode='rgb_array' and cameras "
                "enabled."
            )
        return torch.as_tensor(picture)

    def close(self) -> None:
        self._env.close()
        self._closing.close()

    def _info(self, mask: Tensor, obs: Obs, extras: Mapping[str, Any]) -> dict[str, Any]:
        final_obs = {key: value.clone() for key, value in obs.items()}
        if bool(mask.any()):
            if "final_obs" not in extras:
                raise EnvError(
                    f"{self.spec.name} ended an episode without extras['final_obs']: it is older than 3.0."
                )
            for key, value in obs_of(extras["final_obs"]).items():
                final_obs[key][mask] = value[mask]  # in other lanes it may be of an earlier step
        if self._term is not None:
            self._success |= self._inner.termination_manager.get_term(self._term)
        info = {"final_obs": final_obs, "final_mask": mask, "success": self._success.clone()}
        info["episode_seed"] = self._seed.clone()
        lanes = torch.nonzero(mask.cpu()).flatten().tolist()
        if self._seeds is not None:
            self._seed[lanes] = torch.tensor(take_seeds(self._seeds, len(lanes)), dtype=torch.int64)
        self._success[mask] = False
        info["next_seed"] = self._seed.clone()
        return info


def make_isaaclab(
    task: str,
    num_envs: int,
    *,
    device: str = "cuda:0",
    presets: str = "",
    action_limit: float = 1.0,
    success: str | None = None,
) -> IsaacLabVecEnv:
    """Task by Isaac Lab's own name. presets: its variants, joined by commas, such as "newton_mjwarp".

    Raises MissingDependencyError without Isaac Lab 3, ConfigError for a task that it does not have.
    """
    try:
        import gymnasium
        import isaaclab_tasks  # noqa: F401 - registers its tasks
        from isaaclab_tasks.utils import launch_simulation, parse_env_cfg, resolve_presets
    except ImportError as error:
        raise MissingDependencyError(
            "'isaaclab' environments need Isaac Lab 3 (Python 3.12, NVIDIA GPU), and "
            f"'{error.name}' cannot be imported. Install it after its own instructions, then robo-rl beside "
            "it (docs/engines-gpu.md)."
        ) from error
    if task not in gymnasium.registry:
        raise ConfigError(
            f"Isaac Lab has no task '{task}'. Its scripts/environments/list_envs.py lists them."
        )
    chosen = {word for word in presets.split(",") if word}
    config = resolve_presets(parse_env_cfg(task, device=device, num_envs=num_envs), selected=chosen)
    config.compute_final_obs = True
    with ExitStack() as stack:
        stack.enter_context(launch_simulation(config))
        env = IsaacLabVecEnv(gymnasium.make(task, cfg=config), f"isaaclab/{task}", action_limit, success)
        env._closing = stack.pop_all()
        return env
