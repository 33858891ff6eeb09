"""Addresses of policy servers: `remote:<host>:<port>[,token=<file>][,deadline_s=<seconds>]`."""

from __future__ import annotations

import ipaddress
import math
import socket
from dataclasses import dataclass, replace

from robo_rl.core.errors import ConfigError

PREFIX = "remote:"
PORT = 5757  # of a server, if no other is given
DEADLINE_S = 60.0  # of a request: the first decision of a large policy takes long
_FORM = "expected: <host>:<port>, then token=<file> or deadline_s=<seconds>, after commas"


@dataclass(frozen=True, slots=True)
class Address:
    """A server, the file of its token and the longest time of a request [s]."""

    host: str
    port: int
    token: str | None = None
    deadline_s: float | None = None  # None: `DEADLINE_S`, or what the caller can wait

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_remote(policy: object) -> bool:
    """True for the address of a policy instead of its path."""
    return isinstance(policy, str) and policy.startswith(PREFIX)


def parse_address(text: str) -> Address:
    """Address of `remote:...`, where prefix and port may be left out. Raises ConfigError for other texts."""
    where, *options = text.removeprefix(PREFIX).split(",")
    host, colon, port = where.rpartition(":")
    if not colon or where.endswith("]"):
        host, port = where, str(PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(
            f"'{text}' is no address of a policy server, expected: an IPv6 address in brackets, such as "
            f"[::1]:{PORT}."
        )
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 1 << 16):
        raise ConfigError(f"'{text}' is no address of a policy server, {_FORM}.")
    address = Address(host, int(port))
    for option in options:
        key, _, value = option.partition("=")
        if key == "token" and value:
            address = replace(address, token=value)
        elif key == "deadline_s":
            address = replace(address, deadline_s=_seconds(text, value))
        else:
            raise ConfigError(f"'{text}' is no address of a policy server, {_FORM}.")
    return address


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError for a host that is not this machine's, or a port in use."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host={host} is no address of this machine ({error.strerror}).") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"No server can listen on host={host} port={port} ({error.strerror}). Give another port; port=0 "
            "takes a free one."
        ) from error
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """True if only programs of this machine reach the socket."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def _seconds(text: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < 86_400.0:
        raise ConfigError(f"deadline_s={value} of '{text}' cannot be used, expected: seconds above 0.")
    return seconds
