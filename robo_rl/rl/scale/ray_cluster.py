"""Connection to a Ray cluster: a local one of this run, on loopback only, or an existing one.

Ray's processes exchange pickled objects: whoever reaches its ports and knows its token runs code here. The
local cluster therefore listens on 127.0.0.1, with a token of its own, and ends with the run.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.text.counts import counted
from robo_rl.rl.scale.environment import environment_variables

LOOPBACK = "127.0.0.1"
CONNECT_S = 5.0
# Ray replaces 127.0.0.1 by the machine's address unless it is told that there is no cluster of machines.
_LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TOKEN = secrets.token_hex(32)  # one for all clusters of this process: Ray keeps the first that it reads
# Ray's port speaks gRPC, which begins with HTTP/2's preface and a settings frame in both directions.
_SETTINGS = b"\x04"
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + b"\0\0\0\0\0"
_SET_BY_RAY = ("RAY_AUTH_MODE",)


@contextmanager
def local_cluster(cpus: int, store_mb: int) -> Iterator[None]:
    """A Ray cluster of this run, without dashboard. cpus: that it may reserve; they need not exist.

    store_mb: size of its object store in /dev/shm. Raises EnvError if it cannot be started.
    """
    folder = tempfile.mkdtemp(prefix="robo-rl-ray-", dir=_short(tempfile.gettempdir()))
    variables = {
        **_LOOPBACK_ONLY,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": _TOKEN,
    }
    try:
        with (
            environment_variables(variables, restored=_SET_BY_RAY),
            _connected(
                address="local",
                num_cpus=cpus,
                object_store_memory=store_mb * 2**20,
                include_dashboard=False,
                _node_ip_address=LOOPBACK,
                _temp_dir=folder,
            ),
        ):
            _check_loopback()
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def existing_cluster(address: str, actors: int, cpus: int) -> Iterator[None]:
    """A cluster that was started by `ray start`. address: host:port, or auto for one on this machine.

    Raises ConfigError if it is not there, has another version, or fewer CPUs than the actors need.
    """
    host = _check_reachable(address)
    loopback = _LOOPBACK_ONLY if _is_loopback(host) else {}
    variables = {"RAY_USAGE_STATS_ENABLED": "0", **loopback}
    with environment_variables(variables, restored=_SET_BY_RAY), _connected(address=address):
        import ray

        found = int(ray.cluster_resources().get("CPU", 0))
        if found < actors * cpus:
            raise ConfigError(
                f"{counted(actors, 'actor')} with {counted(cpus, 'CPU')} each do not fit the Ray cluster at "
                f"{address}, which has {counted(found, 'CPU')}. Lower actors, or start Ray with more "
                "(--num-cpus)."
            )
        yield


def _short(folder: str) -> str:
    """The folder, or /tmp: names of Ray's sockets below it may have at most 107 characters."""
    return folder if len(folder) <= 24 else "/tmp"


@contextmanager
def _connected(**settings: Any) -> Iterator[None]:
    """Ray's connection; signals keep the effect that they have in the rest of robo-rl."""
    import ray

    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
        except Exception as error:  # Ray raises errors of many kinds, even of its own
            raise _described(error, settings["address"]) from error
        signal.signal(signal.SIGINT, handlers[signal.SIGINT])
        signal.signal(signal.SIGTERM, _stop)
        yield
    finally:
        ray.shutdown()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C: a process that SIGTERM ends at once would leave Ray's folder behind."""
    raise KeyboardInterrupt


def _described(error: Exception, address: str) -> EnvError | ConfigError:
    """One sentence on why Ray could not be started or reached."""
    words = " ".join(str(error).split())
    if address == "local":
        return EnvError(f"Ray could not be started: {words}")
    if "Version mismatch" in words:
        return ConfigError(
            f"The Ray cluster at {address} has another version: {words.partition('Version mismatch: ')[2]}. "
            "Install the same Ray and Python on all machines."
        )
    if "InvalidAuthToken" in words:
        return ConfigError(
            f"The Ray cluster at {address} asks for a token. Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to "
            "the cluster's (`ray get-auth-token` on its first machine)."
        )
    return ConfigError(f"The Ray cluster at {address} cannot be used: {words}")


def _check_reachable(address: str) -> str:
    """Host of the cluster. Raises ConfigError if nothing listens there."""
    if address == "auto" and (address := _running_here()) == "":
        raise ConfigError(
            "There is no Ray cluster on this machine for ray_address=auto. Start one by `ray start --head`, "
            "give its host:port, or leave out ray_address for a local cluster of the run."
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"ray_address={address} is no address. Give host:port, or auto.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as connection:
            connection.sendall(_HTTP2_HELLO)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"No Ray cluster answers at {address} ({error}). Start one by `ray start --head --port={port}`, "
            "or leave out ray_address for a local cluster of the run."
        ) from error
    if answer[3:4] != _SETTINGS:  # Ray itself would try for minutes
        raise ConfigError(
            f"What listens at {address} is no Ray cluster. Give the address that `ray start --head` has "
            "printed."
        )
    return host


def _running_here() -> str:
    """Address that Ray uses for "auto": $RAY_ADDRESS, or what `ray start` has noted; "" if there is none."""
    noted = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    return os.environ.get("RAY_ADDRESS") or (noted.read_text().strip() if noted.is_file() else "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except (OSError, ValueError):
        return False


def _check_loopback() -> None:
    """Raise EnvError if Ray has bound its ports to another address than 127.0.0.1."""
    import ray

    found = ray.util.get_node_ip_address()
    if found != LOOPBACK:
        raise EnvError(
            f"Ray {ray.__version__} listens on {found}, expected {LOOPBACK} only. Do not import ray before "
            "the run starts, or use ray_address of a cluster that you trust."
        )
