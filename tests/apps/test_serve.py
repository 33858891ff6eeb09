"""`robo-rl serve` as a process of its own, and the verbs that use it: all on the loopback interface."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hardware.nodes.arm_policy import ArmPolicyNode
from policies.deploy.bundle import Bundle
from policies.remote.address import parse_address
from policies.remote.policy import RemotePolicy
from robo_rl.apps import serve
from robo_rl.apps.cli.main import main
from robo_rl.conf.schema import ServeConfig
from robo_rl.core.errors import ConfigError
from robo_rl.runs.loaded_policy import own_env
from sim.registry import make_env
from tests.hardware.bundles import arm_bundle
from tests.policies.remote.test_remote_policy import TOKEN, noise_of, observations

ROOT = Path(__file__).resolve().parents[2]
Server = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return arm_bundle(tmp_path_factory.mktemp("reach") / "bundle", env=make_env("arm6/reach", 1).spec)


@pytest.fixture
def server() -> Iterator[Server]:
    """Starts `robo-rl serve`; returns the process and the address that it prints."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "robo_rl", "serve", "port=0", "device=cpu", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"listening on (\S+);", line):
                return process, found[1]
        raise AssertionError(said)

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def results(file: Path) -> Any:
    """Outcome of every episode in a result file of `evaluate`, without times."""
    found = json.loads(file.read_text())["policy"]
    return {key: value for key, value in found.items() if key not in ("cpu_s", "wall_s")}


def test_remote_evaluation_equals_the_local_one(
    reach: Bundle, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same episodes, chunks and outcomes; Ctrl-C then ends the server with a line and exit code 0."""
    process, address = server(f"policy={reach.folder}")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    assert own_env(f"remote:{address}", "view") == "arm6/reach"
    few = ["episodes=4", "max_episode_steps=20", "num_workers=0", "device=cpu"]
    for policy, name in ((f"remote:{address}", "remote"), (str(reach.folder), "local")):
        assert main(["evaluate", f"policy={policy}", f"out={tmp_path / name}.json", *few]) == 0
    assert results(tmp_path / "remote.json") == results(tmp_path / "local.json")
    said = capsys.readouterr().out
    assert f"remote:{address} on arm6/reach: success" in said
    assert f"ONNX Runtime on cpu at {address}" in said
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert re.search(r"serve: stopped after \d+ decisions for 2 clients\.", rest)
    assert process.returncode == 0


def test_server_killed_in_a_request_is_one_sentence(
    reach: Bundle, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frozen at the third request, then SIGKILL: exit code 3 and one line; nothing hangs."""
    process, address = server(f"policy={reach.folder}")
    asked, ask = list[int](), RemotePolicy.sample

    def sample(self: RemotePolicy, obs: Any, noise: Any) -> Any:
        asked.append(len(obs["state"]))
        if len(asked) == 3:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # until then a thread may answer
            threading.Timer(0.5, process.kill).start()
        return ask(self, obs, noise)

    monkeypatch.setattr(RemotePolicy, "sample", sample)
    code = main(["evaluate", f"policy=remote:{address}", "episodes=4", "num_envs=2", "num_workers=0"])
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said == (
        f"robo-rl: The policy server at {address} cannot be used: it closed the connection. This program "
        "does not reconnect: start it again, and the server too if that has ended: robo-rl serve "
        f"policy=<run> port={address.rpartition(':')[2]}"
    )
    assert code == 3
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("metaworld/reach-v3", "does not fit metaworld/reach-v3: "),
        ("arm6/reach:control=joint_delta", "Unknown option of arm6 environments 'control'"),
    ],
)
def test_environment_of_another_contract_is_refused(
    reach: Bundle, server: Server, env: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, address = server(f"policy={reach.folder}")
    assert main(["evaluate", f"policy=remote:{address}", f"env={env}", "num_workers=0"]) == 2
    assert words in capsys.readouterr().err


def test_token_file_is_made_for_its_owner_alone(
    reach: Bundle, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that has the file is served, as is one with the variable; the token is not printed."""
    file = tmp_path / "token"
    process, address = server(f"policy={reach.folder}", f"token={file}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    remote = RemotePolicy(parse_address(f"{address},token={file}"))
    remote.sample(observations(remote.contract, 1), noise_of(remote.contract, 1))
    remote.close()
    token = file.read_text().strip()
    monkeypatch.setenv("ROBO_RL_TOKEN", token)
    RemotePolicy(parse_address(address)).close()
    process.terminate()
    rest, _ = process.communicate(timeout=30)
    assert "2 clients" in rest
    assert token not in rest


def test_other_machines_need_a_token(
    reach: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before the policy is loaded. The test listens on loopback and calls it reachable."""
    monkeypatch.setattr(serve, "is_loopback", lambda listener: False)
    monkeypatch.delenv("ROBO_RL_TOKEN", raising=False)
    assert main(["serve", f"policy={reach.folder}", "port=0"]) == 2
    assert "is reached from other machines, so clients must know a token" in capsys.readouterr().err
    config = ServeConfig(str(reach.folder), port=0)
    monkeypatch.setenv("ROBO_RL_TOKEN", TOKEN)
    assert serve.token_of(config, loopback=False) == TOKEN
    monkeypatch.setenv("ROBO_RL_TOKEN", "short")
    with pytest.raises(ConfigError, match="The environment variable ROBO_RL_TOKEN holds no token"):
        serve.token_of(config, loopback=True)
    config.token = str(tmp_path / "absent" / "token")
    with pytest.raises(ConfigError, match="cannot be made"):
        serve.token_of(config, loopback=True)


def test_a_refused_policy_leaves_no_token(
    reach: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy with a memory is not served: nothing is written for clients, and no line asks to copy it."""
    monkeypatch.setattr(serve, "memory_shape", lambda policy: (4, 8))
    assert main(["serve", f"policy={reach.folder}", "port=0", f"token={tmp_path / 'token'}"]) == 2
    said = capsys.readouterr()
    assert "remembers its decisions" in said.err
    assert "token" not in said.out
    assert not (tmp_path / "token").exists()
    assert main(["serve", "policy=not looked for", "port=0", f"token={tmp_path}/absent/token"]) == 2
    assert "cannot be made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["serve", "policy=remote:a"], "is served already"),
        (["serve", "policy=nowhere", "port=0"], "nowhere does not exist"),
        (["run", "bundle=remote:a:5555"], "Give bundle=<a copy of it> robot=<...> remote=a:5555; to"),
        (["evaluate", "policy=remote:a:b:c"], "is no address of a policy server"),
        (["export", "policy=remote:a", "out=x"], "here its files are needed"),
        (["finetune", "base=remote:a", "out=x"], "here its files are needed"),
        (["distill", "teacher=remote:a", "out=x"], "here its files are needed"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.long
def test_policy_folder_is_served_with_its_normaliser(run: Path) -> None:
    """The identity of a run's policy equals that of the bundle exported from it."""
    from policies.deploy.bundle import load_bundle
    from policies.remote.contract import bundle_contract
    from robo_rl.runs.device import pick_device
    from robo_rl.runs.loaded_policy import open_policy

    bundle = run.parent / "served-bundle"
    assert main(["export", f"policy={run}", f"out={bundle}", "noise=gaussian"]) == 0
    ours = serve.contract_of(open_policy(run, pick_device("cpu")))
    assert ours.normalizer
    assert not ours.differences(bundle_contract(load_bundle(bundle)))


@pytest.mark.slow
def test_arm_is_stopped_when_the_server_dies(
    reach: Bundle, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulated arm follows remote chunks; SIGKILL of the server: held, reported, exit code 3.

    The filter may stop the arm before the fault of the policy is read; then its reason is the report.
    """
    process, address = server(f"policy={reach.folder}")
    asked, ask = list[int](), ArmPolicyNode._request_chunk

    def request(self: ArmPolicyNode, stamp_s: float) -> None:
        asked.append(1)
        if len(asked) == 20:
            process.kill()
        ask(self, stamp_s)

    monkeypatch.setattr(ArmPolicyNode, "_request_chunk", request)
    code = main(["run", f"bundle={reach.folder}", "robot=sim_arm", f"remote={address}", "seconds=60"])
    said = capsys.readouterr()
    assert code == 3
    reasons = ("cannot be used: it closed the connection", "ended: the safety filter: ")
    assert any(reason in said.out for reason in reasons)
    assert "chunks were inferred" in said.out
