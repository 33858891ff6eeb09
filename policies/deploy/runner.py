"""Running a bundle at the robot's rate: the exported graph in the executor of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.deploy.bundle import Bundle
from policies.deploy.graph import Device, OnnxGraph
from policies.deploy.kept_prefix import KeptPrefix
from policies.executor import ChunkExecutor
from robo_rl.core.conditioning import MEMORY
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import NoiseSource, Obs, VecEnv, reported_success
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float
from robo_rl.core.text.counts import counted
from robo_rl.core.text.durations import Durations
from robo_rl.core.ticks import ticks

_NO_FEATURES = (
    "A bundle provides no features for learning. Fine-tune or distil the policy folder of its export."
)


class OnnxPolicy:
    """A `ChunkPolicy` under ONNX Runtime; converts between the physical units of the graphs and [-1, 1]."""

    def __init__(self, bundle: Bundle, device: Device = "auto", threads: int = 1) -> None:
        self.obs_spec, self.action_spec = bundle.env.obs, bundle.env.action
        self.obs_steps, self.chunk, self.execute = bundle.obs_steps, bundle.chunk, bundle.execute
        sample, refine = bundle.graph(0), bundle.graph(1)
        assert sample is not None
        self.prefix = None if bundle.prefix is None else KeptPrefix(bundle.prefix, device, threads)
        self.head_took = Durations()  # seconds of the graph of `sample`, with a prefix
        self._sample = OnnxGraph(sample, sample.name, device, threads)
        self._refine = None if refine is None else OnnxGraph(refine, refine.name, device, threads)
        self.reads_every_step, self.memory_shape = refine is not None, bundle.memory
        low, high = torch.tensor(self.action_spec.low), torch.tensor(self.action_spec.high)
        self._low, self._per_unit = low, 2.0 / (high - low)
        self._is_normal = bool((low == -1.0).all() and (high == 1.0).all())
        self._check(bundle)

    @property
    def device(self) -> str:
        """Device of the graphs: "cpu" or "cuda"."""
        return self._sample.device

    @property
    def runtime(self) -> str:
        """What runs the graphs, for figures of time: "ONNX Runtime on cpu"."""
        return f"ONNX Runtime on {self.device}"

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        raise ConfigError(_NO_FEATURES)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        raise ConfigError(_NO_FEATURES)

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self._sample_from(self._with_prefix(obs), noise)

    def sample_with_moment(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> tuple[Tensor, Tensor]:
        """(chunk, moment) of a policy with a memory; see `conditioning.sample_with_moment`."""
        seen = self._with_prefix(obs)
        return self._sample_from(seen, noise), seen["moment"]

    def _sample_from(self, seen: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        start_s = time.perf_counter()
        chunk = self._sample.run({**seen, "noise": noise}, "chunk")
        if self.prefix is not None:
            self.head_took.add(time.perf_counter() - start_s)
        return self._normalize(chunk)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        if self._refine is None:
            return action
        seen = {**self._with_prefix(obs), "action": self.action_spec.denormalize(action)}
        return self._normalize(self._refine.run(seen, "refined"))

    def _with_prefix(self, obs: Obs) -> Obs:
        """The observation, with the prefix's outputs where the graphs read them."""
        return obs if self.prefix is None else {**obs, **self.prefix(obs)}

    def _normalize(self, action: Tensor) -> Tensor:
        """Map to [-1, 1], clipped against rounding. Tensors are preallocated: this runs at 1 kHz."""
        return action if self._is_normal else ((action - self._low) * self._per_unit - 1.0).clamp(-1.0, 1.0)

    def _check(self, bundle: Bundle) -> None:
        expected = {key: (self.obs_steps, *spec.shape) for key, spec in self.obs_spec.items()}
        expected["noise"] = (self.chunk, self.action_spec.dim)
        if self.memory_shape is not None:
            expected[MEMORY] = self.memory_shape
        taken = self._sample.shapes
        if self.prefix is not None:
            kept = set(bundle.manifest["prefix"]["outputs"])
            taken = {key: shape for key, shape in taken.items() if key not in kept} | self.prefix.graph.shapes
        if expected != taken:
            raise CheckpointError(
                f"The graph of {bundle.folder} takes {taken}, its manifest states "
                f"{expected}. The manifest was edited; export the bundle again."
            )


def bundle_noise(bundle: Bundle) -> EpisodeNoise:
    """Noise of the bundle's measurement."""
    return EpisodeNoise((bundle.chunk, bundle.env.action.dim), scale=0.0 if bundle.noise == "zero" else 1.0)


@dataclass(frozen=True, slots=True)
class LoopReport:
    """Report of a closed-loop run. Times in milliseconds; a decision is a tick on which a chunk was planned.

    Counts are exact, percentiles accurate to half a per cent: see robo_rl/core/text/durations.py.
    """

    rate_hz: float
    ticks: int
    missed: int  # ticks whose work was not finished when the next one was due
    skipped: int  # deadlines skipped after a tick that took too long
    decision_ms_p50: float
    decision_ms_p99: float
    tick_ms_p99: float  # entire work of a tick, including environment or driver
    late_ms_p99: float  # delay of the start of ticks
    success: tuple[bool | None, ...]  # finished episodes, in order; None: the environment reports none
    wall_s: float

    def __str__(self) -> str:
        known = [success for success in self.success if success is not None]
        solved = f"{sum(known)}/{len(known)} episodes succeeded"
        if self.success and not known:
            solved = counted(len(self.success), "episode")
        return (
            f"{self.ticks} ticks at {self.rate_hz:g} Hz: {self.missed} missed deadlines, {self.skipped} "
            f"skipped, decision {self.decision_ms_p50:.3g} ms (p99 {self.decision_ms_p99:.3g} ms), {solved}"
        )


class _Log:
    """Counts and times of a run; memory grows only by a flag per episode."""

    def __init__(self, period_s: float) -> None:
        self.late, self.work, self.decision = Durations(), Durations(), Durations()
        self.missed = self.skipped = 0
        self.success: list[bool | None] = []
        self._period_s = period_s
        self._deadline_s: float | None = None

    def tick(self, begin_s: float, late_s: float, work_s: float) -> None:
        """Record a tick that began at begin_s, late_s after its deadline, and took work_s."""
        self.late.add(late_s)
        self.work.add(work_s)
        self.missed += late_s + work_s > self._period_s
        deadline_s = begin_s - late_s
        if self._deadline_s is not None:
            self.skipped += round((deadline_s - self._deadline_s) / self._period_s) - 1
        self._deadline_s = deadline_s


def run_closed_loop(
    env: VecEnv,
    executor: ChunkExecutor,
    noise: NoiseSource,
    rate_hz: float,
    *,
    episodes: int | None = None,
    seconds: float | None = None,
    eval_seed: int = 0,
    on_tick: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> LoopReport:
    """Observe, decide and act on absolute deadlines, until `episodes` have ended or `seconds` have passed.

    env: one lane. The episodes are those of evaluation `eval_seed`, so that a run can be compared with it.
    """
    if env.num_envs != 1:
        raise ConfigError(
            f"A closed loop drives one robot, found an environment with {env.num_envs} lanes. Make one with "
            "num_envs=1."
        )
    if (episodes is None) == (seconds is None):
        raise ConfigError(
            "A closed loop ends after `episodes` or after `seconds`: give exactly one of the two."
        )
    log, seeds, start_s = _Log(1.0 / rate_hz), _seeds(eval_seed), clock()
    obs = env.reset(_seeds(eval_seed))
    executor.reset(obs)
    noise.reset([0], [next(seeds)])
    for late_s in ticks(rate_hz, clock, sleep):
        begin_s = clock()
        if _ended(len(log.success), episodes) or (seconds is not None and begin_s - start_s >= seconds):
            break
        ended = _tick(env, executor, noise, log, clock)
        if ended:
            noise.reset([0], [next(seeds)])
        log.tick(begin_s, late_s, clock() - begin_s)
        on_tick()
    return _report(log, rate_hz, clock() - start_s)


def _ended(done: int, episodes: int | None) -> bool:
    return episodes is not None and done >= episodes


def _tick(
    env: VecEnv, executor: ChunkExecutor, noise: NoiseSource, log: _Log, clock: Callable[[], float]
) -> bool:
    """One control step; True if it ended an episode."""
    deciding, begin_s = len(executor.due()) > 0, clock()
    action = env.spec.action.denormalize(executor.act(noise))
    if deciding:
        log.decision.add(clock() - begin_s)
    obs, _, _, _, info = env.step(action)
    executor.observe(obs)
    if ended := bool(info["final_mask"][0]):
        executor.reset(obs, torch.tensor([0]))
        log.success.append(reported_success(info, 0))
    return ended


def _report(log: _Log, rate_hz: float, wall_s: float) -> LoopReport:
    return LoopReport(
        rate_hz=rate_hz,
        ticks=log.work.count,
        missed=log.missed,
        skipped=log.skipped,
        decision_ms_p50=1e3 * log.decision.percentile_s(50),
        decision_ms_p99=1e3 * log.decision.percentile_s(99),
        tick_ms_p99=1e3 * log.work.percentile_s(99),
        late_ms_p99=1e3 * log.late.percentile_s(99),
        success=tuple(log.success),
        wall_s=wall_s,
    )


def _seeds(eval_seed: int) -> Iterator[int]:
    return (derive_seed("eval", eval_seed, i) for i in count())
