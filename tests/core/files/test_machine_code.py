"""The folder in which compiled code is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.core.errors import EnvError
from robo_rl.core.files import machine_code
from robo_rl.nets.gradients import compiled


def test_a_cache_that_cannot_be_written_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home folder is often read-only in a container; the message says how to choose another folder."""
    (tmp_path / "file").touch()
    with pytest.raises(EnvError, match=r"kept in .*kernels \(Not a directory\)\. Set .* ROBO_RL_CACHE to"):
        machine_code.build_library("", tmp_path / "file" / "kernels" / "a.so", (), "a test")
    monkeypatch.setattr(machine_code.os, "access", lambda path, mode: False)
    with pytest.raises(EnvError, match=r"kept in .* \(Permission denied\)\. Set .* ROBO_RL_CACHE to"):
        machine_code.make_cache_folder(tmp_path)


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker run --user` gives a user number that the system does not know."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("ROBO_RL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(EnvError, match=r"no home folder for compiled code\. Set .* ROBO_RL_CACHE to"):
        machine_code.cache_folder()
    with pytest.warns(UserWarning, match="Updates run in torch .* ROBO_RL_CACHE"):
        assert compiled._library.__wrapped__(bfloat16=False) is None
