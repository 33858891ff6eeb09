"""What commands the robot at its rate: it plays chunks, corrects them by a residual, or decides each command
by itself.

    player                  slow chunk policy in another process, its waypoints played as they are
    player + residual       the same, each action corrected from the newest state (two rates)
    single step             no chunk policy at all: one network call per tick

Pure but for the network call: no bus, no thread, no sleep; time is handed in.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from hardware.loop.observation import ObservationHistory, Seen
from hardware.loop.player import ChunkPlayer, Counter, resampled
from hardware.loop.timing import LoopTiming
from hardware.messages import JointTrajectory
from policies.deploy.bundle import Bundle
from policies.deploy.graph import BoundGraph
from policies.deploy.runner import OnnxPolicy, bundle_noise
from robo_rl.core.errors import CheckpointError

STALE_STATE_PERIODS = 3.0


@runtime_checkable
class Decide(Protocol):
    """Turns the stacked observation, and the chunk's action where there is one, into what to command."""

    needs_chunks: bool

    def __call__(self, stacked: Seen, action: Float[ndarray, " a"] | None) -> Float[ndarray, " a"]: ...


class SingleStep:
    """A bundle whose chunk is one action."""

    needs_chunks = False

    def __init__(self, bundle: Bundle, seed: int = 0) -> None:
        if bundle.chunk != 1:
            raise CheckpointError(
                f"The bundle '{bundle.name}' decides {bundle.chunk} actions at once, and a head decides one. "
                "Distil it (robo-rl distill), or run it as arm_policy."
            )
        sample, refine = bundle.graph(0), bundle.graph(1)
        assert sample is not None
        self._sample = BoundGraph(sample, "chunk")
        self._refine = None if refine is None else BoundGraph(refine, "refined")
        self._zero = np.zeros((1, bundle.env.action.dim), np.float32)
        self._low, self._high = (
            np.array(limit, np.float32) for limit in (bundle.env.action.low, bundle.env.action.high)
        )
        self._noise = None if bundle.noise == "zero" else bundle_noise(bundle)
        if self._noise is not None:
            self._noise.reset([0], [seed])
        self._decision = 0

    def __call__(self, stacked: Seen, action: Float[ndarray, " a"] | None) -> Float[ndarray, " a"]:
        """Arrays all the way: at 1 kHz, tensors around one small network cost more than the network."""
        noise = self._zero if self._noise is None else self._noise.draw([0], [self._decision]).numpy()[0]
        self._decision += 1
        decided = self._clipped(self._sample(stacked | {"noise": noise})[0])
        return decided if self._refine is None else self._clipped(self._refine(stacked | {"action": decided}))

    def _clipped(self, decided: Float[ndarray, " a"]) -> Float[ndarray, " a"]:
        kept: Float[ndarray, " a"] = np.minimum(np.maximum(decided, self._low), self._high)
        return kept


class Residual:
    """The per-step half of a residual bundle; its chunks come from arm_policy."""

    needs_chunks = True

    def __init__(self, bundle: Bundle) -> None:
        if bundle.graph(1) is None:
            raise CheckpointError(
                f"The bundle '{bundle.name}' corrects nothing: play its chunks without a head."
            )
        self._policy = OnnxPolicy(bundle, "cpu")

    def __call__(self, stacked: Seen, action: Float[ndarray, " a"] | None) -> Float[ndarray, " a"]:
        assert action is not None
        obs = {key: torch.from_numpy(value).unsqueeze(0) for key, value in stacked.items()}
        spec = self._policy.action_spec
        normal = spec.normalize(torch.from_numpy(action.astype(np.float32)).unsqueeze(0))
        refined: Float[ndarray, " a"] = spec.denormalize(self._policy.refine(obs, normal))[0].numpy()
        return refined


class ActionHead:
    """One command per tick, or none. `decide` None plays chunks as they are."""

    def __init__(
        self, period_s: float, state_period_s: float, decide: Decide | None = None, steps: int = 1
    ) -> None:
        self.timing, self.player = LoopTiming(period_s), ChunkPlayer()
        self.epoch = 0  # resets
        self._period_s, self._state_period_s, self._decide = period_s, state_period_s, decide
        self._counter, self._history = Counter(), ObservationHistory(steps)
        self._seen: Seen | None = None
        self._seen_s = -math.inf
        self._chunk_order = (-1, -1)

    def reset(self) -> None:
        """A new episode. Chunks of the one before are refused by their stamp."""
        self.epoch += 1
        self.player.reset()
        self._counter.reset()
        self._history.reset()
        self._seen = None

    def on_state(self, stamp_s: float, seen: Seen | None, received_s: float) -> None:
        """A state came; `seen` is what a deciding head is shown of it."""
        self._counter.see(stamp_s, self.player.played)
        self._seen, self._seen_s = seen, received_s

    def on_chunk(self, message: JointTrajectory) -> bool:
        """Take a chunk; False when it is out of order, from before the reset, empty, not finite, or of no
        more use.
        """
        order = message.epoch, message.sequence
        start = self._counter.find(message.stamp_s)
        if order <= self._chunk_order or start is None or len(message.times_s) == 0:
            return False
        if not np.isfinite(message.position_rad).all():
            return False
        self._chunk_order = order
        return self.player.offer(resampled(message.position_rad, message.times_s, self._period_s), start)

    def tick(self, now_s: float) -> Float[ndarray, " j"] | None:
        """The command of this tick; None when the state is stale or nothing is queued. Call `done` after
        sending it.
        """
        self.timing.begin(now_s)
        if now_s - self._seen_s > STALE_STATE_PERIODS * self._state_period_s:
            return None
        if self._decide is None:
            return self.player.next()
        if self._seen is None:
            return None
        self._history.push(self._seen)
        action = self.player.next() if self._decide.needs_chunks else None
        if action is None and self._decide.needs_chunks:
            return None
        return self._decide(self._history.stacked(), action)

    def done(self, now_s: float) -> None:
        """The tick's work is done."""
        self.timing.end(now_s)
