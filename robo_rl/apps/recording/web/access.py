"""Access to the page: names that it answers to, same-origin requests, and a token for other machines."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from policies.remote.token import VARIABLE
from robo_rl.core.errors import ConfigError


def open_without_token(host: str) -> ConfigError:
    """Error for a page that other machines reach without a token."""
    return ConfigError(
        f"host={host} is open to other machines, and the page moves a robot: give token=<file>, which is "
        f"made if absent, or set {VARIABLE}; or reach this machine by an SSH tunnel."
    )


@dataclass(frozen=True)
class Access:
    """names: host names that the page answers to, so that no foreign name leads to it (DNS rebinding).

    addresses: True to answer to any IP address as well. token: None on this machine alone. secure: HTTPS.
    """

    names: frozenset[str]
    addresses: bool
    port: int
    token: str | None
    secure: bool = False

    @classmethod
    def of(cls, host: str, port: int, token: str | None, loopback: bool, secure: bool = False) -> Access:
        """Access to a server that listens on `host`."""
        names = {"localhost", "127.0.0.1", "::1", host.lower()}
        if not loopback:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(frozenset(names), not loopback, port, token, secure)

    @property
    def cookie(self) -> str:
        """Name of the cookie that holds the token. Browsers send it to every port of the host, where other
        apps may have theirs.
        """
        return f"robo_rl_record_{self.port}"

    def refusal(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> str:
        """Why a request is refused; empty if it may pass."""
        if fault := self.foreign(headers):
            return fault
        if self.token is not None and not self.knows(cookies.get(self.cookie, "")):
            return "This page needs its token."
        return ""

    def foreign(self, headers: Mapping[str, str]) -> str:
        """Why a request is foreign to this page; empty for its own, and for programs without an origin."""
        host = headers.get("host", "")
        if not self._answers_to(host):
            return f"This page does not answer to the name '{host[:100]}'."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return f"Requests of pages from '{origin[:100]}' are refused."
        return ""

    def knows(self, given: str) -> bool:
        """True for the right token."""
        return self.token is None or hmac.compare_digest(given.encode(errors="replace"), self.token.encode())

    def _answers_to(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = (parts.hostname or "").lower(), parts.port or (443 if self.secure else 80)
        except ValueError:
            return False
        return port == self.port and (name in self.names or (self.addresses and _is_address(name)))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
