"""Test of the contract of `protocols.VecEnv`, clause by clause, for every engine.

Use an environment whose episodes are shorter than `steps`, so that episodes end during the test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.protocols import Obs, StepResult, VecEnv
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.core.spec import EnvSpec
from sim.vec.vec_env import INFO_KEYS


def check_vec_env(env: VecEnv, steps: int = 40, seed: int = 0, atol: float = 0.0) -> None:
    """Raise EnvError that names the clause which `env` breaks.

    `atol`: 0 demands bit-exact repetition; GPU engines without a fixed order of summation need more.
    """
    _check_shape_of(env)
    actions = _random_actions(env.spec, steps, env.num_envs, seed)
    first = _roll(env, EpisodeSeeds(("conformance", seed)), actions)
    _check_endings(env.spec, first)
    _check_seed_order(first, seed)
    _roll(env, EpisodeSeeds(("another history", seed)), actions[: steps // 2])
    again = _roll(env, EpisodeSeeds(("conformance", seed)), actions)
    _same(first, again, atol, "An episode must be a pure function of its seed and its actions")
    _check_restore(env, actions, first, seed, atol)
    _check_clipping(env, actions, seed, atol)


@dataclass(slots=True)
class _Trace:
    """One rollout of T steps, and copies of each result, made when it arrived."""

    obs: list[Obs] = field(default_factory=list)  # T + 1
    results: list[StepResult] = field(default_factory=list)  # T
    copies: list[list[Tensor]] = field(default_factory=list)


def _require(condition: bool, clause: str, found: object = "") -> None:
    if not condition:
        raise EnvError(
            f"The vector environment breaks its contract: {clause}{f', found {found}' if found else ''}."
        )


def _check_shape_of(env: VecEnv) -> None:
    _require(isinstance(env, VecEnv), "it must have all the methods of VecEnv")
    _require(
        env.metadata.get("autoreset_mode") == "same_step", "metadata['autoreset_mode'] must be 'same_step'"
    )
    _require(env.num_envs >= 2, "the test needs at least two lanes", env.num_envs)
    _require(bool(env.spec.obs), "spec.obs must name the observations")
    _require(EnvSpec.from_json(env.spec.to_json()) == env.spec, "spec must survive JSON", env.spec)


def _random_actions(spec: EnvSpec, steps: int, n: int, seed: int) -> Tensor:
    """(steps, n, a) inside the limits."""
    unit = torch.rand((steps, n, spec.action.dim), generator=generator("conformance", seed)) * 2.0 - 1.0
    return spec.action.denormalize(unit)


def _roll(env: VecEnv, seeds: EpisodeSeeds, actions: Tensor) -> _Trace:
    trace = _Trace([env.reset(seeds)])
    _check_obs(env, trace.obs[0], "reset")
    return _continue(env, trace, actions)


def _continue(env: VecEnv, trace: _Trace, actions: Tensor) -> _Trace:
    for i, action in enumerate(actions):
        given = action.clone()
        if i % 2:
            env.step_async(given)
            result = env.step_wait()
        else:
            result = env.step(given)
        _require(torch.equal(given, action), "step must not change the caller's action")
        _check_result(env, result)
        trace.obs.append(result[0])
        trace.results.append(result)
        trace.copies.append([tensor.clone() for tensor in _tensors(result)])
    for result, copies in zip(trace.results, trace.copies, strict=True):
        kept = all(torch.equal(a, b) for a, b in zip(_tensors(result), copies, strict=True))
        _require(kept, "tensors must be fresh every step, so that callers may keep them")
    return trace


def _tensors(result: StepResult) -> list[Tensor]:
    obs, reward, terminated, truncated, info = result
    extra = [info[key] for key in sorted(info) if key != "final_obs"]
    return [*obs.values(), reward, terminated, truncated, *info["final_obs"].values(), *extra]


def _check_obs(env: VecEnv, obs: Obs, where: str) -> None:
    _require(
        set(obs) == set(env.spec.obs), f"{where} must return the keys {sorted(env.spec.obs)}", sorted(obs)
    )
    for key, array in env.spec.obs.items():
        shape, dtype = (env.num_envs, *array.shape), array.torch_dtype
        found = (tuple(obs[key].shape), obs[key].dtype)
        _require(found == (shape, dtype), f"'{key}' of {where} must be {shape} {dtype}", found)
        _require(bool(torch.isfinite(obs[key]).all()), f"'{key}' of {where} must be finite")


def _check_result(env: VecEnv, result: StepResult) -> None:
    obs, reward, terminated, truncated, info = result
    n = env.num_envs
    _check_obs(env, obs, "step")
    _require(reward.shape == (n,) and reward.dtype == torch.float32, "reward must be (n,) float32", reward)
    _require(all(key in info for key in INFO_KEYS), f"info must hold {INFO_KEYS}", sorted(info))
    flags = {"terminated": terminated, "truncated": truncated} | {
        k: info[k] for k in ("final_mask", "success")
    }
    for name, flag in flags.items():
        _require(flag.shape == (n,) and flag.dtype == torch.bool, f"{name} must be (n,) bool", flag)
    _require(
        info["episode_seed"].dtype == torch.int64, "episode_seed must be int64", info["episode_seed"].dtype
    )
    _require(not (terminated & truncated).any(), "a lane must not be terminated and truncated at once")
    _require(
        torch.equal(info["final_mask"], terminated | truncated), "final_mask must be terminated | truncated"
    )
    _check_obs(env, info["final_obs"], "info['final_obs']")
    for key, value in obs.items():
        running = ~info["final_mask"]
        same = torch.equal(info["final_obs"][key][running], value[running])
        _require(same, f"final_obs['{key}'] must equal obs in lanes whose episode has not ended")
    for key in set(info) - {"final_obs", "executed_action"}:
        _require(info[key].shape == (n,), f"info['{key}'] must have one entry per lane", info[key].shape)


def _check_endings(spec: EnvSpec, trace: _Trace) -> None:
    """Check that episodes end in time, that success is never taken back, and that the next episode starts in
    the step that ends the one before.
    """
    n = len(trace.results[0][1])
    length, succeeded = torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.bool)
    for _, _, _, truncated, info in trace.results:
        length += 1
        mask, success = info["final_mask"], info["success"]
        _require(bool((success | ~succeeded).all()), "success must stay true until the episode ends")
        at_limit = length == spec.max_episode_steps
        _require(bool((mask | ~at_limit).all()), f"episodes must end within {spec.max_episode_steps} steps")
        _require(
            bool((at_limit | ~truncated).all()),
            "only the time limit may truncate",
            length[truncated].tolist(),
        )
        length[mask], succeeded = 0, success & ~mask
    ended = sum(int(result[4]["final_mask"].sum()) for result in trace.results)
    _require(ended > 0, "no episode ended during the test: give more steps, or a smaller max_episode_steps")


def _check_seed_order(trace: _Trace, seed: int) -> None:
    """Check that lane i takes the i-th seed, and that lanes that end take the next ones, in lane order."""
    seeds = EpisodeSeeds(("conformance", seed))
    running = list(islice(seeds, len(trace.results[0][1])))
    for *_, info in trace.results:
        found = info["episode_seed"].tolist()
        _require(found == running, f"episode_seed must be {running} here", found)
        for lane in torch.nonzero(info["final_mask"]).flatten().tolist():
            running[lane] = next(seeds)
        found = info["next_seed"].tolist()
        _require(found == running, f"next_seed must be {running} here", found)


def _check_restore(env: VecEnv, actions: Tensor, whole: _Trace, seed: int, atol: float) -> None:
    """Snapshot half-way, run other episodes, restore: the second half and later episodes stay the same."""
    half = len(actions) // 2
    seeds = EpisodeSeeds(("conformance", seed))
    _roll(env, seeds, actions[:half])
    snapshot, count = env.snapshot(), seeds.count
    _roll(env, EpisodeSeeds(("another history", seed)), actions[:3])
    # Engines that do not store the position of the seeds need the iterator where it was at the snapshot.
    env.reset(EpisodeSeeds(("conformance", seed), count - env.num_envs))
    for later in (None, EpisodeSeeds(("conformance", seed), count)):
        obs = env.restore(snapshot) if later is None else env.restore(snapshot, later)
        _check_obs(env, obs, "restore")
        _same_obs(obs, whole.obs[half], atol, "restore must return to the state of the snapshot")
        rest = _continue(env, _Trace([obs]), actions[half:])
        _same(
            _Trace(whole.obs[half:], whole.results[half:]),
            rest,
            atol,
            "The steps after restore must equal those without it",
        )


def _check_clipping(env: VecEnv, actions: Tensor, seed: int, atol: float) -> None:
    spec = env.spec.action
    low, high = torch.tensor(spec.low), torch.tensor(spec.high)
    beyond = actions[:2] + torch.where(actions[:2] > (low + high) / 2, high - low, low - high)
    clipped = beyond.maximum(low).minimum(high)
    free, limited = (_roll(env, EpisodeSeeds(("clipping", seed)), each) for each in (beyond, clipped))
    _same(limited, free, atol, "Actions beyond the limits must act like the limits")


def _same(expected: _Trace, found: _Trace, atol: float, clause: str) -> None:
    for a, b in zip(expected.obs, found.obs, strict=True):
        _same_obs(a, b, atol, clause)
    for (_, *numbers_a, info_a), (_, *numbers_b, info_b) in zip(expected.results, found.results, strict=True):
        _require(all(_close(a, b, atol) for a, b in zip(numbers_a, numbers_b, strict=True)), clause)
        _same_obs(info_a["final_obs"], info_b["final_obs"], atol, clause)
        _require(all(_close(info_a[key], info_b[key], atol) for key in info_a if key != "final_obs"), clause)


def _same_obs(expected: Obs, found: Obs, atol: float, clause: str) -> None:
    for key, value in expected.items():
        _require(_close(value, found[key], atol), clause, f"another '{key}'")


def _close(a: Any, b: Any, atol: float) -> bool:
    if a.dtype.is_floating_point and atol > 0.0:
        return bool(torch.allclose(a, b, rtol=0.0, atol=atol))
    return torch.equal(a, b)
