"""A served policy equals the local one, and every other server is refused with the reason."""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.deploy.bundle import OWN_SUM, Bundle, load_bundle, sha256_of, sha256_of_manifest
from policies.deploy.runner import OnnxPolicy
from policies.executor import ChunkExecutor
from policies.remote.contract import MOST_ROWS, PolicyContract, bundle_contract, normalizer_id
from policies.remote.frames import GarbledError
from policies.remote.policy import RemotePolicy
from robo_rl.core.errors import CheckpointError, ConfigError, RemoteError
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.spec import ActionSpec, ArraySpec
from robo_rl.data.normalizer import Normalizer
from tests.policies.remote.serving import Start, served

TOKEN = "0123456789abcdef-token"


def observations(contract: PolicyContract, rows: int) -> Obs:
    """Random observations as the policy reads them."""
    generator, obs = torch.Generator().manual_seed(rows), {}
    for key, spec in contract.env.obs.items():
        shape = rows, contract.obs_steps, *spec.shape
        obs[key] = (
            torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
            if spec.dtype == "uint8"
            else torch.randn(shape, generator=generator)
        )
    return obs


def noise_of(contract: PolicyContract, rows: int) -> torch.Tensor:
    return torch.randn(
        rows, contract.chunk, contract.env.action.dim, generator=torch.Generator().manual_seed(7)
    )


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_remote_chunks_equal_local_ones_bit_for_bit(button_bundle: Bundle, start: Start, rows: int) -> None:
    remote, local = RemotePolicy(start(served(button_bundle)).address), OnnxPolicy(button_bundle, "cpu")
    assert isinstance(remote, ChunkPolicy)
    obs, noise = observations(remote.contract, rows), noise_of(remote.contract, rows)
    assert remote.sample(obs, noise).equal(local.sample(obs, noise))
    precise = {key: value.double() for key, value in obs.items()}
    assert remote.sample(precise, noise).equal(local.sample(obs, noise))
    action = noise[:, 0]
    assert remote.refine(obs, action) is action


def test_corrections_and_pictures_are_remote_too(residual_bundle: Bundle, start: Start) -> None:
    remote, local = RemotePolicy(start(served(residual_bundle)).address), OnnxPolicy(residual_bundle, "cpu")
    obs, noise = observations(remote.contract, 2), noise_of(remote.contract, 2)
    assert remote.sample(obs, noise).equal(local.sample(obs, noise))
    assert remote.refine(obs, noise[:, 0]).equal(local.refine(obs, noise[:, 0]))
    assert not remote.refine(obs, noise[:, 0]).equal(noise[:, 0])


def test_executor_runs_a_remote_policy(button_bundle: Bundle, start: Start) -> None:
    """History, chunks and noise of two lanes: the same actions as from the local policy."""
    remote, acted = RemotePolicy(start(served(button_bundle)).address), []
    for policy in (remote, OnnxPolicy(button_bundle, "cpu")):
        executor, noise = ChunkExecutor(policy, 2), EpisodeNoise((4, 1))
        noise.reset([0, 1], [5, 6])
        executor.reset({"state": torch.zeros(2, 2)})
        actions = []
        for i in range(5):
            actions.append(executor.act(noise))
            executor.observe({"state": torch.full((2, 2), 0.1 * i)})
        acted.append(torch.stack(actions))
    assert acted[0].equal(acted[1])


def test_several_clients_get_their_own_chunks(button_bundle: Bundle, start: Start) -> None:
    """Four at once, 25 requests each, none mixed up; more than allowed are refused with the reason."""
    running = start(served(button_bundle), most_clients=4)
    local, wrong = OnnxPolicy(button_bundle, "cpu"), list[str]()
    remotes = [RemotePolicy(running.address) for _ in range(4)]
    with pytest.raises(RemoteError, match="it serves 4 clients already"):
        RemotePolicy(running.address)

    def ask(number: int) -> None:
        obs = observations(remotes[number].contract, number + 1)
        noise = noise_of(remotes[number].contract, number + 1)
        expected = local.sample(obs, noise)
        for _ in range(25):
            if not remotes[number].sample(obs, noise).equal(expected):
                wrong.append(f"client {number}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert (running.server.answered, running.server.clients) == (100, 4)


def test_token_is_proved_by_both_sides(
    button_bundle: Bundle, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or the variable; a wrong, missing or needless token is refused, and none is ever sent."""
    open_, closed = start(served(button_bundle)), start(served(button_bundle), TOKEN)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "other").write_text("another token that is long enough")
    right, wrong = (replace(closed.address, token=str(tmp_path / name)) for name in ("token", "other"))
    assert RemotePolicy(right).chunk == 4
    with pytest.raises(RemoteError, match="its token differs"):
        RemotePolicy(wrong)
    with pytest.raises(RemoteError, match="it asks for a token; give token=<file"):
        RemotePolicy(closed.address)
    with pytest.raises(RemoteError, match="it asks for no token, but one was given"):
        RemotePolicy(replace(open_.address, token=str(tmp_path / "token")))
    monkeypatch.setenv("ROBO_RL_TOKEN", TOKEN)
    assert RemotePolicy(closed.address).chunk == 4
    assert not [line for line in closed.said if TOKEN in line]
    with pytest.raises(ConfigError, match="cannot be read from nowhere"):
        RemotePolicy(replace(closed.address, token="nowhere"))
    (tmp_path / "short").write_text("1234")
    with pytest.raises(ConfigError, match="holds no token: 16 to 512 printable"):
        RemotePolicy(replace(closed.address, token=str(tmp_path / "short")))


def test_environment_that_does_not_fit_is_refused(button_bundle: Bundle, start: Start) -> None:
    """Keys, shapes, units, action space and rate, all named in one sentence."""
    remote = RemotePolicy(start(served(button_bundle)).address)
    env = button_bundle.env
    remote.check(env)
    remote.check(replace(env, obs=env.obs | {"image.top": ArraySpec((4, 4, 3), "uint8")}))
    wrong = replace(env, obs={"state": ArraySpec((3,), unit="SI")}, action=ActionSpec((-9.0,), (9.0,), "rad"))
    with pytest.raises(CheckpointError) as caught:
        remote.check(replace(wrong, control_hz=10.0))
    for part in (
        "'state' is float32 (3,), expected",
        "limited to (-9.0,)",
        "in 'rad', expected 'N'",
        "10 Hz",
    ):
        assert part in str(caught.value)
    with pytest.raises(CheckpointError, match="is in 'm', expected 'SI'"):
        remote.check(replace(env, obs={"state": ArraySpec((2,), unit="m")}))
    with pytest.raises(CheckpointError, match="observation 'state' is missing"):
        remote.check(replace(env, obs={"other": ArraySpec((2,))}))


def test_another_policy_is_refused_by_its_contract(button_bundle: Bundle, start: Start) -> None:
    """What a robot expects of its own bundle: horizons, noise, normaliser and corrections."""
    remote, ours = RemotePolicy(start(served(button_bundle)).address), bundle_contract(button_bundle)
    remote.check_is(ours)
    remote.check_is(replace(ours, name="another name", runtime="another runtime"))
    for changes, words in (
        ({"chunk": 8}, "chunk is 4, expected 8"),
        ({"obs_steps": 1}, "obs_steps is 2, expected 1"),
        ({"execute": 1}, "execute is 2, expected 1"),
        ({"noise": 0.0}, "noise is 1.0, expected 0.0"),
        ({"normalizer": "0" * 64}, "it was fitted on other data"),
        ({"normalizer": ""}, "expected none"),
        ({"refines": True}, "it does not correct each action"),
        ({"env": replace(ours.env, obs=ours.env.obs | {"x": ArraySpec((1,))})}, "it does not read x"),
    ):
        with pytest.raises(CheckpointError, match=words):
            remote.check_is(replace(ours, **changes))


def test_identity_of_a_normaliser_follows_its_numbers(button_bundle: Bundle, tmp_path: Path) -> None:
    """Equal for tensors and the manifest's lists, different for any other key, number or shape."""
    rows = {"a": torch.rand(9, 2), "b": torch.rand(9, 1)}
    fitted = {key: (c.numpy(), s.numpy()) for key, (c, s) in Normalizer.fit(rows).statistics().items()}
    lists = {key: (c.tolist(), s.tolist()) for key, (c, s) in fitted.items()}
    identity = normalizer_id(fitted)
    assert identity == normalizer_id(lists)
    others: list[dict[str, Any]] = [
        {"a": lists["a"]},
        {"a": lists["a"], "c": lists["b"]},
        {**lists, "b": (lists["b"][0], [np.nextafter(np.float32(lists["b"][1][0]), np.float32(9)).item()])},
        {**lists, "b": ([lists["b"][0]], lists["b"][1])},
    ]
    assert len({identity, *map(normalizer_id, others)}) == 5
    assert normalizer_id({}) == ""
    folder = tmp_path / "edited"
    shutil.copytree(button_bundle.folder, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["normalizer"]["state"]["center"][0] += 0.5
    (folder / "manifest.json").write_text(json.dumps(manifest | {OWN_SUM: sha256_of_manifest(manifest)}))
    assert sha256_of(folder / "policy.json")
    assert bundle_contract(load_bundle(folder)).normalizer != bundle_contract(button_bundle).normalizer


def test_late_answer_is_one_sentence(button_bundle: Bundle, start: Start) -> None:
    """The connection is then failed: the late chunk can never be taken for a later one."""
    policy, wait_s = served(button_bundle), [0.0]

    def sample(obs: Any, noise: Any) -> Any:
        time.sleep(wait_s[0])
        return policy.sample(obs, noise)

    remote = RemotePolicy(replace(start(replace(policy, sample=sample)).address, deadline_s=0.3))
    obs, noise = observations(remote.contract, 1), noise_of(remote.contract, 1)
    remote.sample(obs, noise)
    wait_s[0] = 1.0
    begin_s = time.monotonic()
    with pytest.raises(RemoteError, match=r"127.0.0.1:\d+ cannot be used: it did not answer within 0.3 s"):
        remote.sample(obs, noise)
    assert time.monotonic() - begin_s < 0.9
    wait_s[0] = 0.0
    with pytest.raises(RemoteError, match="did not answer within"):
        remote.sample(obs, noise)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda chunk: chunk * np.float32(np.nan), "the policy's answer is not finite"),
        (lambda chunk: chunk[:, :1], "the policy answered float32"),
        (lambda chunk: chunk.astype(np.float64), "the policy answered float64"),
    ],
)
def test_impossible_chunk_of_the_policy_is_not_sent(
    button_bundle: Bundle, start: Start, answer: Any, words: str
) -> None:
    policy = served(button_bundle)
    running = start(replace(policy, sample=lambda obs, noise: answer(policy.sample(obs, noise))))
    remote = RemotePolicy(running.address)
    with pytest.raises(RemoteError, match=words):
        remote.sample(observations(remote.contract, 1), noise_of(remote.contract, 1))


def test_error_in_the_policy_does_not_end_the_server(
    button_bundle: Bundle, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client is told in one sentence; the traceback is the server's; the next client is served."""
    policy, broken = served(button_bundle), [True]

    def sample(obs: Any, noise: Any) -> Any:
        if broken[0]:
            raise ZeroDivisionError
        return policy.sample(obs, noise)

    running = start(replace(policy, sample=sample))
    remote = RemotePolicy(running.address)
    obs, noise = observations(remote.contract, 1), noise_of(remote.contract, 1)
    with pytest.raises(RemoteError, match="an error in the policy: ZeroDivisionError"):
        remote.sample(obs, noise)
    assert "Traceback" in capsys.readouterr().err
    broken[0] = False
    RemotePolicy(running.address).sample(obs, noise)


def test_end_of_the_server_finishes_the_running_decision(button_bundle: Bundle, start: Start) -> None:
    """The client gets its chunk, and one sentence at its next request."""
    policy, deciding = served(button_bundle), threading.Event()

    def sample(obs: Any, noise: Any) -> Any:
        deciding.set()
        time.sleep(0.5)
        return policy.sample(obs, noise)

    running = start(replace(policy, sample=sample))
    remote = RemotePolicy(running.address)
    obs, noise = observations(remote.contract, 1), noise_of(remote.contract, 1)

    def end() -> None:
        deciding.wait()
        running.end()

    ending = threading.Thread(target=end)
    ending.start()
    assert remote.sample(obs, noise).equal(OnnxPolicy(button_bundle, "cpu").sample(obs, noise))
    ending.join()
    with pytest.raises(RemoteError, match="it closed the connection"):
        remote.sample(obs, noise)


def test_batch_beyond_the_bound_is_refused(button_bundle: Bundle, start: Start) -> None:
    remote = RemotePolicy(start(served(button_bundle)).address)
    rows = MOST_ROWS + 1
    with pytest.raises(RemoteError, match=r"cannot be used: (a frame was refused: arrays of|it closed)"):
        remote.sample(observations(remote.contract, rows), noise_of(remote.contract, rows))


def test_learning_needs_the_policy_itself(button_bundle: Bundle, start: Start) -> None:
    remote = RemotePolicy(start(served(button_bundle)).address)
    with pytest.raises(ConfigError, match="provides no features for learning"):
        remote.features({})
    with pytest.raises(ConfigError, match="provides no features for learning"):
        remote.sample_from(torch.zeros(1, 1), torch.zeros(1, 4, 1))


def test_contract_survives_and_broken_ones_are_refused(residual_bundle: Bundle) -> None:
    """A hostile server's contract: every field removed or replaced is a GarbledError, never another error."""
    ours = bundle_contract(residual_bundle, "a runtime")
    assert PolicyContract.from_json(json.loads(json.dumps(ours.to_json()))) == ours
    told = ours.to_json()
    bad: list[Any] = [None, -1, 10**30, "x", [], {}, float("1e308"), True, [[]], {"a": None}]
    for key in told:
        with pytest.raises(GarbledError):
            PolicyContract.from_json({name: value for name, value in told.items() if name != key})
        for value in bad if key not in ("name", "runtime", "refines") else []:
            if (key, value) not in (("noise", True),) and not (key == "normalizer" and value == ""):
                with pytest.raises(GarbledError):
                    PolicyContract.from_json({**told, key: value})
    for where in ("obs", "action", "control_hz", "max_episode_steps", "name"):
        for value in bad if where != "name" else [None, 3]:
            env = {**told["env"], where: value}
            if where != "obs" or value != {}:
                with pytest.raises(GarbledError):
                    PolicyContract.from_json({**told, "env": env})
    huge = {"state": {"shape": [2**30, 2**30], "dtype": "float32", "unit": ""}}
    odd = {"state": {"shape": [3], "dtype": "object", "unit": ""}}
    for obs in (huge, odd):
        with pytest.raises(GarbledError):
            PolicyContract.from_json({**told, "env": {**told["env"], "obs": obs}})
