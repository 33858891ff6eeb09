"""Provenance of results, without the host name."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from robo_rl.core import provenance


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """The functions answer once per process."""
    provenance.commit.cache_clear()
    yield
    provenance.commit.cache_clear()


def repository(path: Path) -> Path:
    """A checkout with one commit."""
    for command in (["init", "-q"], ["config", "user.email", "a@example.org"], ["config", "user.name", "a"]):
        subprocess.run(["git", *command], cwd=path, check=True)
    (path / "file").write_text("1")
    subprocess.run(["git", "add", "."], cwd=path, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=path, check=True)
    return path


def test_commit_marks_changed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of changed code must not have the commit of unchanged code; new results alone are no change."""
    monkeypatch.setattr(provenance, "REPOSITORY", repository(tmp_path))
    clean = provenance.commit()
    assert len(clean) == 10
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "a.jsonl").write_text("{}")
    provenance.commit.cache_clear()
    assert provenance.commit() == clean
    (tmp_path / "new.py").write_text("x = 1")
    provenance.commit.cache_clear()
    assert provenance.commit() == clean + "-dirty"


def test_a_copy_without_history_names_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable, which is also right where an older history travelled along."""
    monkeypatch.setenv("ROBO_RL_COMMIT", "0123456789")
    for place in (tmp_path / "copy", repository(tmp_path)):
        monkeypatch.setattr(provenance, "REPOSITORY", place)
        provenance.commit.cache_clear()
        assert provenance.commit() == "0123456789"


def test_an_installed_wheel_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a checkout the commit is unknown; that of an enclosing repository would be wrong."""
    inside = repository(tmp_path) / "lib" / "site-packages"
    inside.mkdir(parents=True)
    monkeypatch.setattr(provenance, "REPOSITORY", inside)
    assert provenance.commit() == "unknown"


def test_machine_is_the_cpu_model() -> None:
    """Results are published: CPU and cores, never the host."""
    assert f"{provenance.cores()} cores" in provenance.machine()
    assert socket.gethostname() not in provenance.machine().split()


def test_versions_are_those_installed() -> None:
    """Python and torch are always there."""
    assert {"python", "torch"} <= provenance.versions().keys()


def test_machine_name_includes_the_vector_extension() -> None:
    """Two CPUs named "AMD EPYC" of which one computes twice as fast must not share a row."""
    core = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx avx2{more}\n"
    assert provenance._processor(core.format(more=" avx512f") * 2) == "AMD EPYC with AVX-512"
    assert provenance._processor(core.format(more="")) == "AMD EPYC with AVX2"
    assert provenance._processor("processor: 0\nmodel name: Old\nflags: fpu\n") == "Old"
    assert provenance._processor("") == ""
