"""Inference in another process: it never blocks the caller, its death is noticed, and it ends with its
parent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from hardware.loop.inference import InferenceProcess, Running
from hardware.loop.sampler import guided_sampler
from policies.deploy.bundle import Bundle
from policies.deploy.runner import OnnxPolicy

SEEN = {"state": np.full((1, 7), 0.3, np.float32)}


@pytest.fixture
def inference(chunks: Bundle) -> Iterator[InferenceProcess]:
    process = InferenceProcess(chunks, "cpu")
    yield process
    process.close()


def wait(process: InferenceProcess, seconds: float = 60.0) -> object:
    """Poll until there is an answer, readiness, or a fault."""
    end_s = time.monotonic() + seconds
    was_ready = process.ready
    while time.monotonic() < end_s:
        answer = process.poll()
        if answer is not None or process.fault or process.ready != was_ready:
            return answer
        time.sleep(0.005)
    raise AssertionError("nothing came")


def test_child_returns_the_same_chunk(inference: InferenceProcess, chunks: Bundle) -> None:
    """Equal to the graph in this process; one request at a time; a hang or a kill never blocks the caller."""
    assert not inference.request(SEEN, 0)  # not ready yet
    wait(inference)
    assert inference.ready
    assert inference.request(SEEN, 0)
    assert not inference.request(SEEN, 1)
    answer = wait(inference)
    assert isinstance(answer, tuple)
    policy = OnnxPolicy(chunks, "cpu")
    obs = {"state": torch.from_numpy(SEEN["state"])[None]}
    expected = chunks.env.action.denormalize(policy.sample(obs, torch.zeros(1, 16, 3)))[0].numpy()
    np.testing.assert_allclose(answer[0], expected, atol=1e-6)

    pid = inference.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # it hangs
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    begun_s = time.monotonic()
    assert inference.request(SEEN, 1)
    for _ in range(100):
        assert inference.poll() is None
        assert not inference.request(SEEN, 2)
    assert time.monotonic() - begun_s < 0.5
    os.kill(pid, signal.SIGKILL)
    wait(inference)
    assert inference.fault == "the inference process has died"
    assert not inference.request(SEEN, 3)
    assert inference.poll() is None


def test_second_chunk_continues_the_first(chunks: Bundle) -> None:
    """The second decision of a real child equals that of the guided policy in this process, not the plain
    one.
    """
    process = InferenceProcess(chunks, "cpu", realtime=True)
    try:
        wait(process)
        assert process.fault == ""
        assert process.request(SEEN, 0)
        first = wait(process)
        assert isinstance(first, tuple)
        running = Running(first[0][8:] + 0.05, 3)
        assert process.request(SEEN, 1, running)
        second = wait(process)
        assert isinstance(second, tuple)
    finally:
        process.close()
    old = torch.zeros(16, 3)
    sample = guided_sampler(chunks, "cpu", old)
    obs, noise, spec = (
        {"state": torch.from_numpy(SEEN["state"])[None]},
        torch.zeros(1, 16, 3),
        chunks.env.action,
    )
    plain = spec.denormalize(sample(obs, noise, 0, 0))[0].numpy()
    old[:8] = torch.from_numpy(running.action)
    np.testing.assert_allclose(first[0], plain, atol=1e-6)
    np.testing.assert_allclose(second[0], spec.denormalize(sample(obs, noise, 3, 8))[0].numpy(), atol=1e-6)
    assert np.abs(second[0] - plain).max() > 1e-3


def test_unguidable_policy_is_reported(hover: Bundle) -> None:
    """Guidance needs a flow; the child reports the reason instead of sending chunks."""
    process = InferenceProcess(hover, "cpu", realtime=True)
    try:
        wait(process)
        assert "Real-time chunking needs a flow policy" in process.fault
    finally:
        process.close()


def test_loading_error_reaches_the_parent(chunks: Bundle, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As one sentence, without a traceback or a restart."""
    folder = tmp_path_factory.mktemp("broken") / "bundle"
    folder.mkdir()
    broken = Bundle(folder, chunks.manifest, chunks.env, 1, 16, 8, "zero", None)
    process = InferenceProcess(broken, "cpu")
    try:
        wait(process)
        assert "is an empty folder, not a bundle" in process.fault
    finally:
        process.close()
