"""Files of named settings: each mistake gives a sentence that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.asset_files import read_settings


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("lag_s: [", ConfigError, "not valid YAML, line 1, column"),
        ("", ConfigError, "holds nothing; expected keys: lag_s, stall"),
        ("- lag_s", ConfigError, "expected keys: lag_s, stall"),
        ("lag: 0.1", UnknownNameError, "lag_s"),
        ("lag_s: 0.1\nstall: 2\nlag_s: 0.2", ConfigError, "line 3, column 1: the key 'lag_s' is given twice"),
        ("lag_s: {elbow: 1, elbow: 1}", ConfigError, "the key 'elbow' is given twice"),
        ("? [lag_s]\n: 0.1", ConfigError, "not valid YAML"),
        ("!!map lag_s", ConfigError, "not valid YAML"),
    ],
)
def test_slips_are_named(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(error, match=said) as found:
        read_settings(path, ["lag_s", "stall"])
    assert str(path) in str(found.value)


def test_known_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("lag_s: 0.1")
    assert read_settings(path, ["lag_s", "stall"]) == {"lag_s": 0.1}
    path.write_text("lag_s: &own {elbow: 1}\nstall: {<<: *own, wrist: 2}")  # a merge is no double
    assert read_settings(path, ["lag_s", "stall"])["stall"] == {"elbow": 1, "wrist": 2}
