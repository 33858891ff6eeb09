"""LeRobot's process: with a stand-in for LeRobot here, with LeRobot itself where its environment exists."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.imported.checkpoint import read_checkpoint
from policies.imported.contract import imported_env, observation_keys
from policies.imported.process import LerobotProcess, lerobot_contract
from policies.remote.address import Address, listen
from policies.remote.policy import RemotePolicy
from robo_rl.apps import serve
from robo_rl.apps.cli.main import main
from robo_rl.core.errors import CheckpointError, ConfigError, RemoteError
from robo_rl.core.spec import ActionSpec
from tests.policies.imported import lerobot_reference
from tests.policies.imported.lerobot_folder import checkpoint
from tests.policies.imported.lerobot_reference import ACTION, ROWS, numbers, observations

LEROBOT = os.environ.get("ROBO_RL_LEROBOT_PYTHON")  # python of an environment with lerobot
STAND_IN = {
    "lerobot/__init__.py": "",
    "lerobot/configs/__init__.py": "",
    "lerobot/configs/policies.py": """
from types import SimpleNamespace
class PreTrainedConfig:
    from_pretrained = staticmethod(lambda folder: SimpleNamespace(type="diffusion", image_features={}))
""",
    "lerobot/policies/__init__.py": "",
    "lerobot/policies/factory.py": """
class Policy:
    diffusion = property(lambda self: self)
    @classmethod
    def from_pretrained(cls, folder, config): return cls()
    def to(self, device): return self
    def eval(self): return self
    def _prepare_global_conditioning(self, batch): return batch["observation.state"].mean(dim=(1, 2))
    def conditional_sample(self, rows, global_cond, noise): return noise + global_cond.view(-1, 1, 1)
def get_policy_class(kind): return Policy
def make_pre_post_processors(config, pretrained_path, preprocessor_overrides):
    assert preprocessor_overrides == {"device_processor": {"device": "cpu"}}
    return (lambda batch: batch), (lambda chunk: chunk)
""",
}


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """Interpreter in which `lerobot` is a stand-in: chunk = noise + mean of the state."""
    for name, text in STAND_IN.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


class Served:
    """A checkpoint that a LeRobot process serves."""

    def __init__(self, folder: Path, python: str) -> None:
        read = read_checkpoint(folder)
        keys = observation_keys(read)
        self.contract = lerobot_contract(read, imported_env(read, keys, None, 10.0), keys)
        with closing(listen("127.0.0.1", 0)) as listener:
            self.process = LerobotProcess(python, read, self.contract, keys, listener)
            self.policy = RemotePolicy(Address("127.0.0.1", listener.getsockname()[1]))

    def chunk(self, image: bool = False) -> torch.Tensor:
        """Chunk in the units of the action, of the reference's observations and noise."""
        seen = observations(self.contract.obs_steps, image).items()
        noise = torch.from_numpy(numbers("noise", (ROWS, self.contract.chunk, ACTION), 1.5))
        chunk = self.policy.sample({key: torch.from_numpy(value) for key, value in seen}, noise)
        spec: ActionSpec = self.contract.env.action
        low, high = torch.tensor(spec.low), torch.tensor(spec.high)
        return low + (chunk + 1.0) / 2.0 * (high - low)

    def close(self) -> str:
        self.policy.close()
        return self.process.close()


def test_chunks_of_the_process_begin_at_the_newest_observation(tmp_path: Path, stand_in: str) -> None:
    """The first of eight actions belongs to the older observation; the last one is repeated. SIGKILL of the
    process is then one sentence.
    """
    served = Served(checkpoint(tmp_path / "there"), stand_in)
    try:
        chunk = served.chunk()
        noise = numbers("noise", (ROWS, 8, ACTION), 1.5)
        state = numbers("state", (ROWS, 2, 3)).mean(axis=(1, 2)).reshape(-1, 1, 1)
        np.testing.assert_allclose(chunk[:, :7], (noise + state)[:, 1:], atol=1e-5)
        assert chunk[:, 7].equal(chunk[:, 6])
        assert (served.contract.execute, served.contract.env.name) == (4, "robot/there")
        served.process.process.send_signal(signal.SIGKILL)
        with pytest.raises(RemoteError, match="cannot be used: it closed the connection"):
            served.chunk()
    finally:
        served.close()


def test_verb_ends_with_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that ends by itself: the address was printed, and the exit code is 3."""

    class Ended:
        returncode = 1

        def __init__(self, *given: object, **settings: object) -> None:
            self.process = self

        def poll(self) -> int:
            return self.returncode

        def close(self) -> str:
            return "its last line"

    monkeypatch.setattr(serve, "LerobotProcess", Ended)
    words = [f"policy={checkpoint(tmp_path / 'there')}", "python=python", "rate_hz=10", "port=0"]
    assert main(["serve", *words]) == 3
    said = capsys.readouterr()
    assert "listening on 127.0.0.1:" in said.out
    assert "its last line" in said.out
    assert "LeRobot's process ended with exit code 1" in said.err


def test_environment_without_lerobot_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A python without it, and no python at all."""
    folder = checkpoint(tmp_path / "there")
    with pytest.raises(RemoteError, match=r"did not load .*there \(exit code 1\)"):
        Served(folder, sys.executable)
    assert "No module named 'lerobot'" in capfd.readouterr().err
    with pytest.raises(ConfigError, match="python=/nowhere cannot be run"):
        Served(folder, "/nowhere")


def test_checkpoints_that_cannot_be_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Types and settings that the process does not know, before it is started."""
    folder = checkpoint(tmp_path / "there")
    config = json.loads((folder / "config.json").read_text())
    for changes, error, words in (
        ({"type": "smolvla"}, ConfigError, "LeRobot's act and diffusion can be served"),
        ({"temporal_ensemble_coeff": 0.01}, ConfigError, "averages over its chunks"),
        ({"n_action_steps": 8}, CheckpointError, "executes 8 actions of a chunk of 8"),
    ):
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(error, match=words):
            Served(folder, "/nowhere")
    for words, sentence in (
        ([f"policy={folder}"], "Give python=<python of an environment with lerobot>"),
        ([f"policy={tmp_path}", "python=python"], "python= is for a checkpoint of LeRobot"),
        ([f"policy={tmp_path / 'none'}", "python=python"], "none does not exist"),
    ):
        assert main(["serve", *words]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(
    LEROBOT is None, reason="needs ROBO_RL_LEROBOT_PYTHON; test_imported.py has LeRobot's numbers stored"
)
def test_lerobot_itself_computes_the_same(tmp_path: Path) -> None:
    """Checkpoints made by LeRobot's classes: served by LeRobot, and for diffusion imported as well."""
    from tests.policies.imported.test_imported import chunk_of, imported

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(LEROBOT), lerobot_reference.__file__, str(tmp_path)]
    subprocess.run(command, env=environment | {"HF_HUB_OFFLINE": "1"}, check=True)
    for kind in ("diffusion", "act"):
        expected: Any = np.array(json.loads((tmp_path / f"{kind}.json").read_text())["chunk"])
        made = Served(tmp_path / kind, str(LEROBOT))
        np.testing.assert_allclose(made.chunk(kind == "act")[:, : expected.shape[1]], expected, atol=1e-4)
        made.close()
        if kind == "diffusion":
            ours = chunk_of(imported(tmp_path / kind))
            np.testing.assert_allclose(ours[:, : expected.shape[1]], expected, atol=1e-4)
