"""Protocols between components: an implementation can be replaced without changes elsewhere.

Axes: n = environments (lanes), b = batch, k = some lanes, To = observation steps, Tp = predicted actions, Ta
= executed actions, a = action dimension, f = feature dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.conditioning import Condition
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import Seeds
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, sense_of

Obs = dict[str, Tensor]  # key -> (n, *shape); "state" in SI units, "image.<camera>" (n, h, w, 3) uint8
LaneIds = Int[Tensor, " k"]  # indices of lanes
Indices = Sequence[int] | LaneIds  # whole numbers, of the host or on a device
StepResult = tuple[Obs, Tensor, Tensor, Tensor, dict[str, Any]]


@runtime_checkable
class VecEnv(Protocol):
    """n environments (lanes) stepped together; a lane starts its next episode in the step that ended the last
    one.

    `step` returns (obs, reward (n,), terminated (n,) bool, truncated (n,) bool, info). `info` always holds
    `final_obs`: Obs, the last observation of the episode for lanes that ended, equal to `obs` elsewhere;
    `final_mask`: (n,) bool, lanes that ended; `success`: (n,) bool, true if the episode that this step
    belongs to has succeeded so far; `episode_seed`: (n,) int64, seed of that episode; `next_seed`: (n,)
    int64, seed of the episode after the step, different only for lanes that ended. With interventions it also
    holds `intervened`: (n,) bool, and `executed_action`: (n, a). An environment that may report no success
    tells by `reports_success`: (n,) whether it has in this episode, see `reported_success`. Actions are in
    the units and limits of `spec.action`; the environment clips them. Each step returns new tensors, which
    callers may keep.
    """

    spec: EnvSpec
    num_envs: int
    metadata: Mapping[str, Any]  # metadata["autoreset_mode"] == "same_step"

    def reset(self, seeds: Seeds) -> Obs:
        """Start one episode per lane. Lane i gets the i-th seed; lanes that end get the next ones, in lane
        order. seeds: a number, a list or an iterator, see `seeding.episode_seeds`.

        An episode is a pure function of its seed and its actions, whatever ran in the environment before.
        """
        ...

    def step(self, action: Float[Tensor, "n a"]) -> StepResult: ...

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        """Start a step; the caller can compute while the simulators run."""
        ...

    def step_wait(self) -> StepResult: ...

    def snapshot(self) -> dict[str, Any]:
        """State of this instant for `restore`: running seeds and the actions since, as tensors and
        numbers.
        """
        ...

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        """Return to a snapshot, bit for bit, by replaying its actions. Returns the current observation.

        seeds: of later episodes, at the position that they had at the snapshot; None: the snapshot's own.
        """
        ...

    def render(self, lane: int = 0) -> Tensor:
        """(h, w, 3) uint8 image of one lane."""
        ...

    def close(self) -> None: ...


def reported_success(info: Mapping[str, Any], lane: int) -> bool | None:
    """Success so far of the episode of this lane; None where the environment has not reported whether it
    succeeds, as gym/Pendulum-v1, which has a return alone.
    """
    if "reports_success" in info and not bool(info["reports_success"][lane]):
        return None
    return bool(info["success"][lane])


@runtime_checkable
class ChunkPolicy(Protocol):
    """A policy that predicts a chunk of normalised actions as a pure function of (observation, noise).

    It holds no queue and draws no random numbers: the `ChunkExecutor` holds queues, the caller draws noise.
    """

    obs_spec: dict[str, ArraySpec]
    action_spec: ActionSpec
    obs_steps: int  # To
    chunk: int  # Tp
    execute: int  # Ta

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        """Input of actors and critics: obs (b, To, *shape) -> normalised, encoded, flat."""
        ...

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        """obs (b, To, *shape), noise standard normal -> chunk in [-1, 1]."""
        ...

    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        """`sample` from precomputed features, or from the condition that `conditioning.encode` makes."""
        ...

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """Per-step correction of the action about to be executed; the identity except for residual
        policies.
        """
        ...


def reads_every_step(policy: ChunkPolicy) -> bool:
    """False for a policy that reads pictures only when it plans, as its attribute of this name says."""
    return bool(getattr(policy, "reads_every_step", True))


@runtime_checkable
class SkipsPictures(Protocol):
    """A vector environment that need not draw every picture: drawing is most of the work on a CPU."""

    def skip_pictures(self, unread: Bool[Tensor, " n"]) -> None:
        """Let the next step leave the pictures of these lanes as they are; its other observations are new.

        The last observation of an episode and the first of the next have new pictures in any case.
        """
        ...


def picture_skipping(env: VecEnv) -> SkipsPictures | None:
    """The environment, if it observes pictures and need not draw all of them."""
    senses = {sense_of(key, array) for key, array in env.spec.obs.items()}
    return (
        env
        if isinstance(env, SkipsPictures) and not senses <= {"state", "text", "privileged", "target"}
        else None
    )


@runtime_checkable
class StateReader(Protocol):
    """Part of an encoder whose output no weight changes: numbers, normalised and flat."""

    spec: dict[str, ArraySpec]  # all observations that the encoder reads

    def states(self, obs: Obs) -> Float[Tensor, "b s"]:
        """obs (b, To, *shape) -> the numbers among the observations."""
        ...


@runtime_checkable
class PictureEncoder(StateReader, Protocol):
    """An encoder (nn.Module) of pictures and of the numbers that are observed beside them."""

    dim: int  # f
    image_keys: tuple[str, ...]

    def encode(self, states: Float[Tensor, "b s"], obs: Obs) -> Float[Tensor, "b f"]:
        """Features of states and pictures (b, To, h, w, c)."""
        ...


@runtime_checkable
class NoiseSource(Protocol):
    """Source of the noise of decision d in the episode of each lane."""

    def reset(self, lane_ids: Indices, episode_seeds: Indices) -> None: ...

    def draw(self, lane_ids: Indices, decision: Indices) -> Float[Tensor, "k Tp a"]: ...


@runtime_checkable
class ResumableNoise(Protocol):
    """Noise source whose state can be saved, as collection requires."""

    def reset(self, lane_ids: Indices, episode_seeds: Indices) -> None: ...
    def draw(self, lane_ids: Indices, decision: Indices) -> Tensor: ...
    def state_dict(self) -> dict[str, list[int]]: ...
    def load_state_dict(self, state: dict[str, list[int]]) -> None: ...


@runtime_checkable
class Executor(Protocol):
    """Part of `ChunkExecutor` that a rollout uses."""

    def reset(self, obs: Obs, lanes: Lanes | LaneIds | None = None) -> None: ...

    def observe(self, obs: Obs) -> None: ...

    def act(self, noise: NoiseSource) -> Float[Tensor, "n a"]:
        """Actions of all lanes, in [-1, 1]."""
        ...


@runtime_checkable
class ForeseesPlans(Protocol):
    """An executor that knows which observations no plan will read; see `ChunkExecutor.unread`."""

    def unread(self, ahead: int = 0) -> Bool[Tensor, " n"]: ...


@runtime_checkable
class PlanningExecutor(Protocol):
    """Part of `ChunkExecutor` that collection uses."""

    policy: ChunkPolicy
    execute: int
    lanes: Lanes  # all of them
    decision: Tensor

    def reset(self, obs: Obs, lanes: Lanes | LaneIds | None = None) -> None: ...
    def observe(self, obs: Obs) -> None: ...
    def history(self, lanes: Lanes | LaneIds | None = None) -> Obs: ...
    def due(self) -> Lanes: ...
    def plan(self, lanes: Lanes, noise: Tensor, condition: Condition | None = None) -> Tensor: ...
    def queue(self, lanes: Lanes, chunk: Tensor, *, replaces: bool = False) -> None: ...
    def peek(self, lanes: Lanes | LaneIds | None = None) -> Tensor: ...
    def advance(self) -> None: ...
    def unread(self, ahead: int = 0) -> Tensor: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Logger(Protocol):
    """Receiver of scalars (TensorBoard, JSON lines, a progress bar)."""

    def log(self, step: int, values: Mapping[str, float | Tensor]) -> None: ...
