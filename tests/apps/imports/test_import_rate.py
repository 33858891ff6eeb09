"""Frames are imported one by one: an unknown rate, or another than the environment's, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.apps.cli.main import main
from robo_rl.data.formats.registry import load_part
from robo_rl.data.store import EpisodeStore
from tests.data.formats.foreign_rlds import make_foreign
from tests.data.recordings import STATE_ENV, record

h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")


def _export(name: str, tmp_path: Path) -> Path:
    out = tmp_path / ("export.hdf5" if name == "robomimic" else "export")
    load_part(name, "writer")(record(tmp_path / "set", [3], env=STATE_ENV), out)
    return out


def _import(source: Path, *words: str) -> int:
    return main(["data", "import", f"source={source}", f"out={source.parent / 'out'}", *words])


@pytest.mark.parametrize("name", ["lerobot", "robomimic", "rlds", "zarr"])
def test_an_environment_of_another_rate_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Motions of 20 Hz at 50 Hz are 2.5 times too fast: a policy would learn them so."""
    source = _export(name, tmp_path)
    keys = ["keys=['state:data/state','action:data/action']"] if name == "zarr" else []
    assert _import(source, "env=arm6/reach", *keys) == 2
    assert "has 20 Hz, but arm6/reach has 50 Hz" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_given_rate_is_compared_with_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_foreign(_export("rlds", tmp_path))
    assert _import(source, "env=arm6/reach", "rate_hz=10") == 2
    assert "has 10 Hz, but arm6/reach has 50 Hz" in capsys.readouterr().err


@pytest.mark.parametrize(("env", "rate_hz"), [("pusht/state", 10), ("arm6/reach", 50)])
def test_the_rate_of_a_buffer_is_compared_with_the_environment(
    env: str, rate_hz: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in the short way of Push-T, whose published file needs no keys; a rate that fits is taken."""
    given = [f"env={env}", "keys=['state:data/state','action:data/action']"]
    source = _export("zarr", tmp_path)
    assert _import(source, *given) == 2
    assert f"has 20 Hz, but {env} has {rate_hz} Hz" in capsys.readouterr().err
    (source / ".zattrs").write_text("{}")  # a buffer of another program
    assert _import(source, *given, "rate_hz=20") == 2
    assert f"has 20 Hz, but {env} has {rate_hz} Hz" in capsys.readouterr().err
    assert _import(source, *given, f"rate_hz={rate_hz}") == 2  # the shape of the state is looked at next
    assert "Hz" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["robomimic", "rlds"])
def test_a_source_without_a_rate_needs_one(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No format's habit is taken for it."""
    source = _export(name, tmp_path)
    if name == "rlds":
        make_foreign(source)
    else:
        with h5py.File(source, "a") as file:
            del file["data"].attrs["env_args"]
            del file["data"].attrs["robo_rl"]
    assert _import(source) == 2
    assert "states no rate" in capsys.readouterr().err
    assert _import(source, "robot=sim_arm") == 2
    assert "states no rate" in capsys.readouterr().err
    assert _import(source, "rate_hz=12.5") == 0
    assert EpisodeStore(tmp_path / "out").spec.control_hz == 12.5


def test_a_buffer_that_we_exported_states_its_rate(tmp_path: Path) -> None:
    """With other names of the observations, too; and another rate_hz= is refused."""
    source = _export("zarr", tmp_path)
    keys = "keys=['joints:data/state','action:data/action']"
    assert _import(source, keys, "rate_hz=30") == 2
    assert _import(source, keys) == 0
    assert EpisodeStore(tmp_path / "out").spec.control_hz == 20.0
