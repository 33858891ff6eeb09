"""Environments whose tensors lie on the device of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.protocols import Obs, StepResult, VecEnv
from robo_rl.core.seeding import Seeds


@runtime_checkable
class DeviceEnv(Protocol):
    """An environment whose engine computes on `device`, and which can leave its results there."""

    device: torch.device

    def keep_on_device(self) -> bool:
        """Take and return tensors of `device` from now on. Call before `reset`.

        Returns False where that is not possible, for example because pictures are made on the host.
        """
        ...


@runtime_checkable
class MovableEnv(Protocol):
    """An environment whose engine runs on any device."""

    def move_to(self, device: torch.device) -> bool:
        """Compute on this device from now on. Call before `reset`. Returns False if that is not possible."""
        ...


def env_on(env: VecEnv, device: torch.device) -> VecEnv:
    """The environment with tensors of this device: by its own engine, or by copies from the host's memory."""
    if device.type == "cpu":
        return env
    if isinstance(env, MovableEnv):
        env.move_to(device)
    if isinstance(env, DeviceEnv) and same_device(env.device, device) and env.keep_on_device():
        return env
    return CopiedEnv(env, device)


def copied_env(env: VecEnv, device: torch.device) -> VecEnv:
    """The environment with tensors of this device, by copies alone: for evaluations, whose seeds end."""
    return env if device.type == "cpu" else CopiedEnv(env, device)


def same_device(one: torch.device, other: torch.device) -> bool:
    """True for the same device, where "cuda" is the first GPU."""
    return (one.type, one.index or 0) == (other.type, other.index or 0)


class CopiedEnv:
    """An environment of the host, with one copy to the device and one back at every step."""

    def __init__(self, env: VecEnv, device: torch.device) -> None:
        self.env, self.device = env, device
        self.spec, self.num_envs, self.metadata = env.spec, env.num_envs, env.metadata

    def reset(self, seeds: Seeds) -> Obs:
        return self._moved(self.env.reset(seeds))

    def step(self, action: Tensor) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def step_async(self, action: Tensor) -> None:
        self.env.step_async(action.cpu())

    def step_wait(self) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step_wait()
        paid, ended, cut = (value.to(self.device) for value in (reward, terminated, truncated))
        return self._moved(obs), paid, ended, cut, self._moved(info)

    def _moved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors, also those of inner mappings, on the device."""
        return {
            key: self._moved(value)
            if isinstance(value, Mapping)
            else value.to(self.device, non_blocking=True)
            if isinstance(value, Tensor)
            else value
            for key, value in values.items()
        }

    def snapshot(self) -> dict[str, Any]:
        return self.env.snapshot()

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        return self._moved(self.env.restore(snapshot, seeds))

    def render(self, lane: int = 0) -> Tensor:
        return self.env.render(lane)

    def close(self) -> None:
        self.env.close()
