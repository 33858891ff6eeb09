"""Inference by a policy server: a late, garbled, dead or different server sends no chunk to the robot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hardware.loop.inference import InferenceProcess
from policies.deploy.bundle import MANIFEST, OWN_SUM, Bundle, load_bundle, sha256_of_manifest
from policies.deploy.runner import OnnxPolicy
from policies.remote.address import Address
from policies.remote.contract import bundle_contract
from policies.remote.server import ServedPolicy
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC
from tests.hardware.bundles import arm_bundle
from tests.hardware.loop.test_inference import SEEN, wait
from tests.policies.remote.serving import Start, served, servers


@pytest.fixture
def start() -> Iterator[Start]:
    with servers() as begin:
        yield begin


def asking(bundle: Bundle, address: Address) -> InferenceProcess:
    """Inference process that asks this server and is ready, or has a fault."""
    process = InferenceProcess(bundle, "cpu", remote=address)
    wait(process)
    return process


def instructed(bundle: Bundle) -> Bundle:
    """The same bundle with an instruction among its observations."""
    manifest = {key: value for key, value in bundle.manifest.items() if key != OWN_SUM}
    env = replace(bundle.env, obs={**bundle.env.obs, INSTRUCTION: INSTRUCTION_SPEC})
    manifest["env"] = env.to_json()
    manifest["rates_hz"] = {**manifest["rates_hz"], INSTRUCTION: env.control_hz}
    (bundle.folder / MANIFEST).write_text(json.dumps(manifest | {OWN_SUM: sha256_of_manifest(manifest)}))
    return load_bundle(bundle.folder)


def test_remote_chunk_equals_the_local_one(chunks: Bundle, start: Start) -> None:
    """Bit for bit; then the server ends, and the answer is a fault instead of a chunk."""
    running = start(served(chunks))
    process = asking(chunks, running.address)
    try:
        assert process.request(SEEN, 0)
        answer = wait(process)
        assert isinstance(answer, tuple)
        obs = {"state": torch.from_numpy(SEEN["state"])[None]}
        normal = OnnxPolicy(chunks, "cpu").sample(obs, torch.zeros(1, 16, 3))
        assert np.array_equal(answer[0], chunks.env.action.denormalize(normal)[0].numpy())
        running.end()
        assert process.request(SEEN, 1)
        assert wait(process) is None
        assert "cannot be used: it closed the connection" in process.fault
        assert not process.request(SEEN, 2)
    finally:
        process.close()


def test_first_calls_have_words(start: Start, tmp_path: Path) -> None:
    """They allocate memory. A policy may answer a text without words by NaN, which a server refuses.

    The server needs no policy that reads them: only the bundle's contract names an instruction.
    """
    told = instructed(arm_bundle(tmp_path / "bundle"))
    asked = list[bool]()

    def sample(obs: Any, noise: Any) -> Any:
        asked.append(bool(np.asarray(obs[INSTRUCTION]).any()))
        return np.zeros_like(noise)

    process = asking(told, start(ServedPolicy(bundle_contract(told), sample)).address)
    process.close()
    assert process.ready
    assert asked == [True, True]


def test_late_answer_is_a_fault_and_no_chunk(chunks: Bundle, start: Start) -> None:
    """The deadline is the time that a chunk lasts: 16 actions at 50 Hz."""
    policy, wait_s = served(chunks), [0.0]

    def sample(obs: Any, noise: Any) -> Any:
        time.sleep(wait_s[0])
        return policy.sample(obs, noise)

    process = asking(chunks, replace(start(replace(policy, sample=sample)).address, deadline_s=None))
    try:
        assert process.ready
        wait_s[0] = 1.0
        assert process.request(SEEN, 0)
        assert wait(process) is None
        assert "it did not answer within 0.32 s" in process.fault
        assert process.poll() is None
    finally:
        process.close()


def test_server_of_another_policy_is_refused(chunks: Bundle, start: Start, tmp_path: Path) -> None:
    """By the contract of the robot's own bundle, before anything is asked."""
    other = arm_bundle(tmp_path / "other", chunk=8, execute=4)
    process = asking(chunks, start(served(other)).address)
    try:
        assert not process.ready
        assert "chunk is 8, expected 16; execute is 4, expected 8" in process.fault
    finally:
        process.close()


def test_guidance_and_a_server_exclude_each_other(chunks: Bundle) -> None:
    with pytest.raises(ConfigError, match="infers from the bundle's weights on this machine"):
        InferenceProcess(chunks, "cpu", realtime=True, remote=Address("127.0.0.1", 1))
