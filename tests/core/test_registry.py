"""Registries: a mistyped name gets the nearest one, a missing package the command that installs it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from robo_rl.core.errors import MissingDependencyError, UnknownNameError
from robo_rl.core.registry import lookup

TABLE = {"root": ("math:sqrt", None), "gone": ("robo_rl.core.gone:Thing", "sim")}


def test_name_is_resolved() -> None:
    """An entry is imported on lookup."""
    assert lookup("function", TABLE, "root") is math.sqrt


def test_an_unknown_name_lists_the_known_ones() -> None:
    """The message states what was found, what was expected and a remedy."""
    with pytest.raises(
        UnknownNameError, match=r"Unknown function 'rot'\. Did you mean 'root'\? Known: gone, root\."
    ):
        lookup("function", TABLE, "rot")


def test_missing_package_error_has_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module exists, but a package that it imports is absent."""
    (tmp_path / "needs_it.py").write_text("import a_package_that_is_not_there\nThing = 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(MissingDependencyError, match=r"pip install 'robo-rl\[sim\]'"):
        lookup("environment", {"it": ("needs_it:Thing", "sim")}, "it")
    sys.modules.pop("needs_it", None)


def test_missing_module_of_robo_rl_is_a_defect() -> None:
    """No advice to install a package that would not help."""
    with pytest.raises(ModuleNotFoundError, match=r"robo_rl\.core\.gone"):
        lookup("thing", TABLE, "gone")
