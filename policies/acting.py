"""A policy that acts on observations as they come: executor, noise and units behind two calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ArraySpec


class LaneActor:
    """Runs a policy in the lanes (rows) of a batch, as an evaluation does.

    An episode begins in a lane at its first observation, and at the first one after its `reset`. noise: scale
    of the initial noise; 0: the action is a function of the observations alone.
    """

    def __init__(self, policy: ChunkPolicy, noise: float) -> None:
        self._policy = policy
        self._noise = EpisodeNoise((policy.chunk, policy.action_spec.dim), noise)
        self._executor: ChunkExecutor | None = None  # None: every lane begins, and their number may change
        self._begins: set[int] = set()  # lanes that begin with the next observation
        self._seeds: dict[int, int] = {}  # seeds that were given for these
        self._episodes = 0  # begun without a given seed

    def reset(self, lanes: Any = None, seeds: Any = None) -> None:
        """Begin new episodes in these lanes with the next observation; None: in all.

        lanes: indices, or a mask over all lanes such as `info["final_mask"]`. seeds: of the noise, one for
        each of `lanes` or, beside a mask, for each lane, such as `info["next_seed"]`; None: new ones.
        """
        chosen, among = (None, 0) if lanes is None else _chosen(lanes)
        given = None if seeds is None else _whole("seeds", seeds)
        if chosen is None:
            self._executor, self._begins, self._seeds = None, set(), dict(enumerate(given or ()))
            return
        self._check_lanes(chosen, among)
        if given is not None and len(given) != len(chosen):
            if len(given) != among:
                raise ConfigError(
                    f"seeds has {len(given)} numbers for {len(chosen)} lanes; give one for each lane."
                )
            given = [given[lane] for lane in chosen]
        self._begins |= set(chosen)
        for lane in chosen:
            self._seeds.pop(lane, None)
        self._seeds |= dict(zip(chosen, given or (), strict=False))

    def act(self, obs: Mapping[str, Any]) -> Float[Tensor, "n a"]:
        """Actions of all lanes, in the units of the environment, on the CPU."""
        batch = _batch(self._policy.obs_spec, obs)
        num = len(next(iter(batch.values())))
        executor = self._executor
        if executor is None:
            if any(lane >= num for lane in self._seeds):
                raise ConfigError(
                    f"seeds were given for {1 + max(self._seeds)} lanes, but the observations have {num}."
                )
            executor, begun = ChunkExecutor(self._policy, num), list(range(num))
            executor.reset(batch)
        elif num != executor.num_envs:
            raise ConfigError(
                f"The observations have {num} lanes, those before had {executor.num_envs}. "
                "Call reset() before a batch of another size."
            )
        else:
            begun = sorted(self._begins)
            executor.observe(batch)
            executor.reset(batch, torch.tensor(begun, dtype=torch.long))
        self._executor = executor
        self._noise.reset(begun, [self._seed(lane) for lane in begun])
        self._begins, self._seeds = set(), {}
        return self._policy.action_spec.denormalize(executor.act(self._noise))

    def _seed(self, lane: int) -> int:
        if lane in self._seeds:
            return self._seeds[lane]
        self._episodes += 1
        return derive_seed("act", self._episodes - 1)

    def _check_lanes(self, chosen: Sequence[int], among: int) -> None:
        num = None if self._executor is None else self._executor.num_envs
        if num is not None and among not in (0, num):
            raise ConfigError(f"The mask of lanes has {among} entries, expected {num}, one for each lane.")
        if bad := [lane for lane in chosen if lane < 0 or (num is not None and lane >= num)]:
            raise ConfigError(f"There is no lane {bad[0]}; lanes are the rows of the observations, from 0.")


def _chosen(lanes: Any) -> tuple[list[int], int]:
    """Indices of lanes, and the length of a mask; 0 for indices."""
    try:
        values = torch.as_tensor(lanes).cpu()
    except (TypeError, ValueError, RuntimeError):
        values = torch.zeros(1)
    if values.dtype == torch.bool and values.dim() == 1:
        return torch.nonzero(values).flatten().tolist(), len(values)
    if values.numel() == 0:
        return [], 0
    return _whole("lanes", values), 0


def _whole(name: str, values: Any) -> list[int]:
    """Whole numbers of a list, array or tensor. Raises ConfigError for anything else."""
    try:
        numbers = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        numbers = torch.zeros(1)
    if (
        numbers.dim() > 1
        or numbers.is_floating_point()
        or numbers.is_complex()
        or numbers.dtype == torch.bool
    ):
        raise ConfigError(f"{name} cannot be used, expected: a list, array or tensor of whole numbers.")
    return [int(number) for number in numbers.flatten().tolist()]


def _batch(spec: Mapping[str, ArraySpec], obs: Mapping[str, Any]) -> Obs:
    """The observations that a policy reads, (n, *shape) each, as tensors on the CPU."""
    if not isinstance(obs, Mapping):
        raise ConfigError(
            f"act takes a dict of observations, as the environment returns it, found {type(obs).__name__}."
        )
    if missing := [key for key in spec if key not in obs]:
        raise ConfigError(
            f"The policy reads '{missing[0]}', which the observations lack; they hold {sorted(obs)}. "
            "Make the environment that it was trained on."
        )
    batch = {key: _array(key, array, obs[key]) for key, array in spec.items()}
    if len(set((sizes := {key: len(value) for key, value in batch.items()}).values())) > 1:
        raise ConfigError(f"The observations have different numbers of lanes: {sizes}.")
    return batch


def _array(key: str, spec: ArraySpec, value: Any) -> Tensor:
    try:
        found = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            f"Observation '{key}' is {type(value).__name__}, expected: an array or a tensor."
        ) from None
    if tuple(found.shape[1:]) != spec.shape or found.dim() == 0:
        raise ConfigError(
            f"Observation '{key}' has shape {tuple(found.shape)}, expected (lanes, "
            f"{', '.join(map(str, spec.shape))}): the first axis counts lanes, [None] adds it to one."
        )
    if spec.dtype == "uint8" and found.dtype != torch.uint8:
        raise ConfigError(f"Observation '{key}' is {found.dtype}, expected uint8 values from 0 to 255.")
    return found.to(spec.torch_dtype)
