"""Modules of a user's own are found in the working directory, without PYTHONPATH."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.core.plugins import PLUGINS, import_own, load_plugins
from robo_rl.core.registry import lookup


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An empty working directory that is not on the path; what a test imports is forgotten after it."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(Path.cwd()))])
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_of_the_working_directory_and_its_siblings(tmp_path: Path) -> None:
    """The folder comes last on the path, so it hides no installed module, and stays for later imports."""
    (tmp_path / "json.py").write_text("raise RuntimeError")
    (tmp_path / "plug_sibling.py").write_text("VALUE = 3")
    (tmp_path / "plug_main.py").write_text("import json, plug_sibling\nVALUE = plug_sibling.VALUE")
    assert import_own("plug_main").VALUE == 3
    assert sys.path[-1] == str(tmp_path)
    assert lookup("network", {"mine": ("plug_main:VALUE", None)}, "mine") == 3


def test_the_working_directory_is_used_for_named_modules_alone(tmp_path: Path) -> None:
    """A module that is nowhere leaves the path as it was, and so does one that an installed package lacks."""
    before = list(sys.path)
    (tmp_path / "plug_folder").mkdir()
    for name in ("plug_nowhere", "json.plug_nowhere"):
        with pytest.raises(ModuleNotFoundError):
            import_own(name)
    assert sys.path == before


def test_a_package_that_the_module_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its absence is not reported as that of the module; a module that is nowhere is a sentence."""
    (tmp_path / "plug_needy.py").write_text("import plug_not_installed")
    monkeypatch.setenv(PLUGINS, "plug_needy")
    with pytest.raises(ModuleNotFoundError, match="plug_not_installed"):
        load_plugins()
    monkeypatch.setenv(PLUGINS, "plug_nowhere")
    with pytest.raises(ConfigError, match=r"'plug_nowhere', which is neither installed nor in the folder"):
        load_plugins()
