"""Addresses of Ray clusters that are refused before Ray, which would try for minutes, is asked."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.rl.scale.ray_cluster import LOOPBACK, _check_reachable, _described, _is_loopback

SETTINGS_FRAME = b"\0\0\0\4\0\0\0\0\0"


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


def answering(words: bytes) -> str:
    """Address of a server that answers its first connection with these words."""
    server = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(1024)
            connection.sendall(words)

    threading.Thread(target=serve, daemon=True).start()
    return f"{LOOPBACK}:{server.getsockname()[1]}"


def test_a_cluster_speaks_http_2() -> None:
    assert _check_reachable(answering(SETTINGS_FRAME)) == LOOPBACK
    with pytest.raises(ConfigError, match="is no Ray cluster"):
        _check_reachable(answering(b"HTTP/1.0 400 Bad Request\r\n"))
    with pytest.raises(ConfigError, match="is no Ray cluster"):
        _check_reachable(answering(b""))


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "127.0.0.1:x", ":6379"])
def test_words_that_are_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        _check_reachable(address)


def test_nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A closed port, and "auto" without a cluster; "auto" with one is where Ray has noted it."""
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConfigError, match=f"No Ray cluster answers at {LOOPBACK}:{port}"):
        _check_reachable(f"{LOOPBACK}:{port}")
    with pytest.raises(ConfigError, match="no Ray cluster on this machine"):
        _check_reachable("auto")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(answering(SETTINGS_FRAME))
    assert _check_reachable("auto") == LOOPBACK


def test_loopback_is_known_by_number() -> None:
    assert _is_loopback("127.0.0.1")
    assert not _is_loopback("192.0.2.7")


def test_another_version_is_told() -> None:
    words = "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\n"
    said = str(_described(RuntimeError(words), "host0:6379"))
    assert said.startswith(
        "The Ray cluster at host0:6379 has another version: The cluster was started with: Ray: 2.9.0"
    )
    assert "RAY_AUTH_TOKEN" in str(_described(RuntimeError("RPC error: InvalidAuthToken: no"), "host0:6379"))
