from __future__ import annotations

import json
import tracemalloc

import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.deploy.bundle import OWN_SUM, Bundle, load_bundle, sha256_of_manifest
from policies.deploy.runner import OnnxPolicy, bundle_noise, run_closed_loop
from policies.executor import ChunkExecutor
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import ChunkPolicy, StepResult
from robo_rl.eval.rollout import eval_seeds, evaluate
from tests.eval.fakes import NoisyPolicy, PushButtonEnv
from tests.policies.small import SmallResidual, flow_policy


def test_the_executor_drives_the_graph_as_it_drives_torch(button_bundle: Bundle) -> None:
    """Same seeds, noise and executor: every action of every episode equals training's, and so do the
    outcomes.
    """
    seeds, actions, outcomes = eval_seeds(0, 12), [], []
    for policy in (flow_policy(), OnnxPolicy(button_bundle)):
        env = PushButtonEnv(3)
        result = evaluate(env, policy, ChunkExecutor, bundle_noise(button_bundle), seeds)
        actions.append(torch.stack(env.actions))
        outcomes.append(result.success)
    torch.testing.assert_close(actions[0], actions[1], atol=4e-5, rtol=0.0)  # 1e-5 of half the range of 8 N
    assert outcomes[0] == outcomes[1]


def test_an_onnx_policy_is_a_chunk_policy(button_bundle: Bundle) -> None:
    """A bundle can replace a policy everywhere except in learning."""
    policy = OnnxPolicy(button_bundle)
    assert isinstance(policy, ChunkPolicy)
    assert policy.device == "cpu"
    with pytest.raises(ConfigError, match="no features"):
        policy.features({})


def test_a_residual_is_refined_every_step(residual_bundle: Bundle) -> None:
    """Between two plans the correction uses the newest observation."""
    executors = [ChunkExecutor(SmallResidual(), 2), ChunkExecutor(OnnxPolicy(residual_bundle), 2)]
    for step in range(5):
        torch.manual_seed(step)
        obs = {
            "state": torch.randn(2, 3),
            "image.top": torch.randint(0, 256, (2, 4, 4, 3), dtype=torch.uint8),
        }
        found = []
        for executor in executors:
            (executor.observe if step else executor.reset)(obs)
            noise = EpisodeNoise((4, 2))
            noise.reset([0, 1], [5, 6])
            found.append(executor.act(noise))
        torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=0.0)


def test_noise_mode_is_that_of_the_evaluation(button_bundle: Bundle) -> None:
    """A policy measured with zero noise must not run with N(0, I), or the reverse."""
    assert bundle_noise(button_bundle).scale == 1.0


def test_missing_observations_are_named(button_bundle: Bundle) -> None:
    """ONNX Runtime's own message is INVALID_ARGUMENT."""
    with pytest.raises(ConfigError, match="needs 'state'"):
        OnnxPolicy(button_bundle).sample({"joints": torch.zeros(1, 2, 2)}, torch.zeros(1, 4, 1))
    with pytest.raises(ConfigError, match=r"shape \(batch, 2, 2\)"):
        OnnxPolicy(button_bundle).sample({"state": torch.zeros(1, 1, 2)}, torch.zeros(1, 4, 1))


def test_a_graph_that_its_manifest_does_not_describe_is_refused(button_bundle: Bundle) -> None:
    """Horizons edited by a program that also mends the checksum: inconsistent with the graph."""
    manifest = button_bundle.folder / "manifest.json"
    before = manifest.read_text()
    data = json.loads(before)
    data["horizons"]["obs_steps"] = 3
    manifest.write_text(json.dumps(data | {OWN_SUM: sha256_of_manifest(data)}))
    try:
        with pytest.raises(CheckpointError, match="manifest states"):
            OnnxPolicy(load_bundle(button_bundle.folder))
    finally:
        manifest.write_text(before)


class FakeTime:
    """A clock that advances by sleeping and working only."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


class WorkingEnv(PushButtonEnv):
    """Step i takes work_s[i] seconds."""

    def __init__(self, time: FakeTime, work_s: list[float]) -> None:
        super().__init__(1)
        self._time, self._work_s = time, iter(work_s)

    def step(self, action: torch.Tensor) -> StepResult:
        self._time.now_s += next(self._work_s)
        self.actions.clear()  # nobody asks for them, and a test here weighs the memory
        return super().step(action)


def closed_loop(work_s: list[float], seconds: float) -> tuple[int, int, int, float]:
    time = FakeTime()
    env, executor = WorkingEnv(time, work_s), ChunkExecutor(NoisyPolicy(), 1)
    report = run_closed_loop(
        env, executor, EpisodeNoise((4, 1)), 10.0, seconds=seconds, clock=time.clock, sleep=time.sleep
    )
    return report.ticks, report.missed, report.skipped, report.tick_ms_p99


def test_deadlines_met_by_hand() -> None:
    """10 Hz, 30 ms of work: ticks at 0.0 ... 0.9 s, none missed."""
    assert closed_loop([0.03] * 20, 0.95) == (10, 0, 0, pytest.approx(30.0))


def test_one_slow_tick_by_hand() -> None:
    """Tick 3 takes 250 ms: it is missed, 0.4 s passes without a tick, the next starts 50 ms late."""
    ticks, missed, skipped, _ = closed_loop([0.03, 0.03, 0.03, 0.25] + [0.03] * 20, 0.95)
    assert (ticks, missed, skipped) == (9, 1, 1)


def test_slow_loop_reports_missed_ticks() -> None:
    """150 ms of work at 10 Hz: every tick is missed, and late ticks are skipped, not queued."""
    ticks, missed, skipped, _ = closed_loop([0.15] * 20, 1.49)
    assert missed == ticks
    assert skipped >= 3


def test_memory_of_an_endless_loop_is_constant() -> None:
    """Memory does not grow with the number of ticks."""

    def peak_bytes(ticks: int) -> int:
        time, work_s = FakeTime(), [1e-3 * (1 + i % 7) for i in range(ticks)]
        env, executor = WorkingEnv(time, work_s), ChunkExecutor(NoisyPolicy(), 1)
        noise, seconds = EpisodeNoise((4, 1)), (ticks - 0.5) / 100.0
        tracemalloc.start()
        report = run_closed_loop(
            env, executor, noise, 100.0, seconds=seconds, clock=time.clock, sleep=time.sleep
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.ticks == ticks
        return peak

    peak_bytes(100)  # imports and caches
    assert peak_bytes(2000) - peak_bytes(200) < 20 * 1800


def test_a_real_loop_keeps_its_rate(button_bundle: Bundle) -> None:
    """The exported graph in real time at 50 Hz for three episodes; decisions are timed apart from queue
    steps.
    """
    executor = ChunkExecutor(OnnxPolicy(button_bundle), 1)
    report = run_closed_loop(PushButtonEnv(1), executor, bundle_noise(button_bundle), 50.0, episodes=3)
    expected = evaluate(
        PushButtonEnv(1), flow_policy(), ChunkExecutor, bundle_noise(button_bundle), eval_seeds(0, 3)
    )
    assert report.success == expected.success
    assert report.ticks == sum(expected.length)
    assert report.wall_s >= (report.ticks - 1) / 50.0
    assert 0.0 < report.decision_ms_p50 <= report.decision_ms_p99
    assert "missed deadlines" in str(report)


def test_a_closed_loop_drives_one_robot_for_a_stated_time() -> None:
    """Many lanes have no common deadline, and a loop without an end never reports."""
    executor, noise = ChunkExecutor(NoisyPolicy(), 1), EpisodeNoise((4, 1))
    with pytest.raises(ConfigError, match="one robot"):
        run_closed_loop(PushButtonEnv(2), executor, noise, 10.0, episodes=1)
    with pytest.raises(ConfigError, match="exactly one"):
        run_closed_loop(PushButtonEnv(1), executor, noise, 10.0)
