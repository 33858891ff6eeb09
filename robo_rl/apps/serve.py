"""`robo-rl serve`: a policy for other processes and machines, on a socket."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.checkpoint import load_policy
from policies.deploy.bundle import MANIFEST, load_bundle
from policies.deploy.export import normalizer_statistics
from policies.imported.checkpoint import is_lerobot, read_checkpoint
from policies.imported.contract import imported_env, observation_keys
from policies.imported.process import LerobotProcess, lerobot_contract
from policies.remote.address import PREFIX, Address, is_loopback, is_remote, listen
from policies.remote.contract import PolicyContract, bundle_contract, normalizer_id
from policies.remote.server import Arrays, PolicyServer, ServedPolicy
from policies.remote.token import VARIABLE, check_token_folder, make_token, read_token
from robo_rl.conf.schema import ServeConfig
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.errors import ConfigError, RemoteError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.shapes import Float
from robo_rl.core.text.counts import counted
from robo_rl.runs.device import pick_device
from robo_rl.runs.loaded_policy import LoadedPolicy, open_policy, trained_env_spec
from robo_rl.runs.signals import stop_between_steps
from sim.registry import make_env

_POLL_S = 0.2


def main(config: ServeConfig) -> int:
    """Serve until Ctrl-C or SIGTERM. Returns 0 at such an end."""
    if is_remote(config.policy):
        raise ConfigError(f"{config.policy} is served already; give clients that address.")
    foreign = is_lerobot(Path(config.policy))
    check_python(config, foreign)
    with closing(listen(config.host, config.port)) as listener:
        loopback = is_loopback(listener)
        check_token(config, loopback)
        try:
            with stop_between_steps(say=False) as stop:
                if foreign:
                    return serve_lerobot(config, listener, loopback, lambda: stop.requested)
                served, first_ms = serve_policy(open_policy(config.policy, pick_device(config.device)))
                token = token_of(config, loopback)
                announce(config, listener, served.contract, f"a decision takes {first_ms:.3g} ms")
                server = PolicyServer(served, listener, token, most_clients=config.clients, say=complain)
                server.serve(lambda: stop.requested)
        except KeyboardInterrupt as again:
            raise KeyboardInterrupt("a decision may be unanswered") from again
    decisions, clients = counted(server.answered, "decision"), counted(server.clients, "client")
    print(f"serve: stopped after {decisions} for {clients}.")
    return 0


def check_python(config: ServeConfig, foreign: bool) -> None:
    """Raise ConfigError for settings of LeRobot without its checkpoint, and for a checkpoint without them."""
    given = [key for key in ("python", "env", "rate_hz", "keys") if getattr(config, key)]
    if given and not foreign:
        if not (folder := Path(config.policy)).exists() and "@" not in folder.name:
            raise ConfigError(
                f"{not_a(folder, 'a checkpoint of LeRobot')} Give the folder that LeRobot wrote."
            )
        raise ConfigError(
            f"{given[0]}= is for a checkpoint of LeRobot, but {config.policy} is none. Leave it out."
        )
    if foreign and config.python is None:
        raise ConfigError(
            f"{config.policy} is a checkpoint of LeRobot, which runs it in its own environment. Give "
            "python=<python of an environment with lerobot>, such as <venv>/bin/python; a diffusion policy "
            "on states can be taken over by robo-rl import-policy."
        )


def announce(config: ServeConfig, listener: socket.socket, contract: PolicyContract, more: str) -> None:
    """Print what is served, where, and how to use it."""
    address = reached_at(listener.getsockname())
    print(f"serve: {contract.name}, for {contract.env.name}; {more}.")
    reach = "this machine alone reaches it" if is_loopback(listener) else "clients need the token"
    print(f"serve: listening on {address}; {reach}. Ctrl-C stops it.")
    print(f"Next:   robo-rl evaluate policy={PREFIX}{address}{token_words(config)}", flush=True)


def serve_lerobot(
    config: ServeConfig, listener: socket.socket, loopback: bool, stop: Callable[[], bool]
) -> int:
    """Let LeRobot serve its checkpoint until `stop()`. Raises RemoteError if its process ends before."""
    read = read_checkpoint(Path(config.policy))
    keys = observation_keys(read, config.keys)
    spec = None if config.env is None else make_env(config.env, 1).spec
    contract = lerobot_contract(read, imported_env(read, keys, spec, config.rate_hz), keys)
    device = str(pick_device(config.device))
    token = token_of(config, loopback)
    process = LerobotProcess(
        str(config.python),
        read,
        contract,
        keys,
        listener,
        token=token,
        device=device,
        clients=config.clients,
    )
    announce(config, listener, contract, f"run by LeRobot in {config.python}")
    try:
        while process.process.poll() is None and not stop():
            time.sleep(_POLL_S)
    finally:
        output = process.close()
    if output:
        print(output)
    if not stop():
        raise RemoteError(
            f"LeRobot's process ended with exit code {process.process.returncode}; start it again."
        )
    return 0


def check_token(config: ServeConfig, loopback: bool) -> None:
    """Raise ConfigError for a token that could not be had. A new file is made when the policy is accepted."""
    if config.token is None or Path(config.token).exists():
        token_of(config, loopback)
    else:
        check_token_folder(config.token)


def token_of(config: ServeConfig, loopback: bool) -> str | None:
    """Token that clients must know; None on this machine alone, unless one is given."""
    if config.token is not None and not Path(config.token).exists():
        try:
            token = make_token(config.token)
        except OSError as error:
            raise ConfigError(
                f"token={config.token} cannot be made ({error.strerror}). Give a file in an existing folder."
            ) from error
        print(f"serve: a new token is in {config.token}; copy this file to the clients, and keep it secret.")
        return token
    given = read_token(config.token)
    if given is None and not loopback:
        raise ConfigError(
            f"host={config.host} is reached from other machines, so clients must know a token. Give "
            f"token=<file>, which is made if absent, or set {VARIABLE}; host=127.0.0.1 needs none."
        )
    return given


def serve_policy(loaded: LoadedPolicy) -> tuple[ServedPolicy, float]:
    """The policy as functions of arrays, after a first decision, and the time of a second one [ms]."""
    policy, contract = loaded.policy, contract_of(loaded)
    obs, noise = blank(policy)
    with torch.no_grad():
        policy.sample(obs, noise)
        begin_s = time.perf_counter()
        policy.sample(obs, noise)
        took_ms = 1e3 * (time.perf_counter() - begin_s)
    return ServedPolicy(contract, Sampler(policy), Refiner(policy) if contract.refines else None), took_ms


def contract_of(loaded: LoadedPolicy) -> PolicyContract:
    """Contract of a policy folder or a bundle. Raises ConfigError for a policy with a memory."""
    if memory_shape(loaded.policy) is not None:
        raise ConfigError(
            f"{loaded.folder} remembers its decisions, and a server holds no memory of episodes. "
            "Serve a policy with policy.memory=0."
        )
    if (loaded.folder / MANIFEST).is_file():
        return bundle_contract(load_bundle(loaded.folder), loaded.runtime)
    policy = load_policy(loaded.folder)
    statistics = normalizer_statistics(policy)
    obs, noise = blank(policy)
    action = noise[:, 0]
    with torch.no_grad():  # a policy without corrections returns the action itself
        refines = policy.refine(obs, action) is not action
    return PolicyContract(
        str(loaded.folder),
        replace(trained_env_spec(loaded.folder), obs=dict(policy.obs_spec), action=policy.action_spec),
        policy.obs_steps,
        policy.chunk,
        policy.execute,
        noise=loaded.noise,
        normalizer=normalizer_id({key: (c.numpy(), s.numpy()) for key, (c, s) in statistics.items()}),
        refines=refines,
        runtime=loaded.runtime,
    )


def blank(policy: ChunkPolicy) -> tuple[Obs, Float[Tensor, "1 Tp a"]]:
    """Observation and noise of zeros."""
    obs = {
        key: torch.zeros(1, policy.obs_steps, *spec.shape, dtype=spec.torch_dtype)
        for key, spec in policy.obs_spec.items()
    }
    return obs, torch.zeros(1, policy.chunk, policy.action_spec.dim)


class Sampler:
    """`sample` of a policy as a function of arrays."""

    def __init__(self, policy: ChunkPolicy) -> None:
        self._policy = policy

    def __call__(self, obs: Arrays, noise: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            return self._policy.sample(_tensors(obs), torch.from_numpy(noise)).numpy()


class Refiner:
    """`refine` of a policy as a function of arrays."""

    def __init__(self, policy: ChunkPolicy) -> None:
        self._policy = policy

    def __call__(self, obs: Arrays, action: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            return self._policy.refine(_tensors(obs), torch.from_numpy(action)).numpy()


def reached_at(place: tuple[Any, ...]) -> str:
    """`<host>:<port>` as clients write it; all addresses of this machine are its name."""
    host = socket.gethostname() if ip_address(place[0].partition("%")[0]).is_unspecified else place[0]
    return str(Address(host, place[1]))


def token_words(config: ServeConfig) -> str:
    return f",token={config.token}" if config.token else ""


def complain(sentence: str) -> None:
    """Print at once, beside the output that a program may read."""
    print(sentence, file=sys.stderr, flush=True)


def _tensors(obs: Arrays) -> Obs:
    return {key: torch.from_numpy(array) for key, array in obs.items()}
