"""Addresses of policy servers, and where a server may listen without a token."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import cast

import pytest

from policies.remote.address import Address, is_loopback, is_remote, listen, parse_address
from policies.remote.client import PolicyConnection
from robo_rl.core.errors import ConfigError, RemoteError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("remote:127.0.0.1:5757", Address("127.0.0.1", 5757)),
        ("192.168.0.7:80", Address("192.168.0.7", 80)),
        ("remote:gpu-box", Address("gpu-box", 5757)),
        ("remote:[::1]:9", Address("::1", 9)),
        ("remote:[::1]", Address("::1", 5757)),
        ("remote:gpu:1,token=a b.txt,deadline_s=0.5", Address("gpu", 1, "a b.txt", 0.5)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(f"remote:{address}") == Address(address.host, address.port)


@pytest.mark.parametrize(
    "text",
    ["remote:", "remote::1", "remote:a:0", "remote:a:65536", "remote:a:" + "9" * 6000, "remote:a:x",
     "remote:a:-1", "remote:a:1,token=", "remote:a:1,user=me", "remote:a:1,deadline_s=0",
     "remote:a:1,deadline_s=nan", "remote:a:1,deadline_s=inf", "remote:a:1,deadline_s=x", "remote:a:1,"],
)  # fmt: skip
def test_texts_that_are_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="expected: "):
        parse_address(text)


@pytest.mark.parametrize("text", ["remote:::1", "remote:::1:5757", "fe80::1:5757,token=a"])
def test_ipv6_addresses_need_brackets(text: str) -> None:
    """Without them the last group would be taken for the port."""
    with pytest.raises(ConfigError, match=r"in brackets, such as \[::1\]:5757"):
        parse_address(text)


def test_paths_are_no_addresses() -> None:
    assert not is_remote("runs/remote:1")
    assert not is_remote(None)
    assert is_remote("remote:a")


@pytest.mark.parametrize(
    ("place", "private"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("0.0.0.0", False), ("192.168.0.7", False),
     ("::", False), ("fe80::1%eth0", False)],
)  # fmt: skip
def test_only_loopback_is_private(place: str, private: bool) -> None:
    class Bound:
        def getsockname(self) -> tuple[str, int]:
            return place, 1

    assert is_loopback(cast(socket.socket, Bound())) is private
    with closing(listen("localhost", 0)) as listener:
        assert is_loopback(listener)


def test_port_in_use_and_foreign_host_are_one_sentence() -> None:
    with closing(listen("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port={port} \(Address already in use\)"):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match="Cannot assign requested address"):
        listen("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("address", "words"),
    [("127.0.0.1:1", "port=1$"), ("gpu-box:1", r"port=1 host=0\.0\.0\.0 token=<file>$")],
)
def test_the_command_for_a_lost_server_can_be_reached(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server for other machines listens on more than the loopback interface, and needs a token."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("socket.create_connection", refuse)
    with pytest.raises(RemoteError, match=words):
        PolicyConnection(parse_address(address))
