"""Registries: tables of name -> ("module:attribute", extra that installs its dependencies)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from robo_rl.core.errors import ConfigError, MissingDependencyError, UnknownNameError
from robo_rl.core.packages import OURS, pip_install
from robo_rl.core.plugins import import_own

Table = Mapping[str, tuple[str, str | None]]
OWN = "One of your own: name its module in ROBO_RL_PLUGINS (docs/own-policy-network-method.md)."


def lookup(kind: str, table: Table, name: str, advice: str = "") -> Any:
    """Imported entry `name` of the table. advice: a last sentence for a name that is not in it.

    Raises UnknownNameError for a name that is not in the table, ConfigError for a user's own entry whose
    module or attribute does not exist, and MissingDependencyError, with the command that installs it, if a
    third-party package of the entry is absent.
    """
    if name not in table:
        raise UnknownNameError(kind, name, table, advice=advice)
    path, extra = table[name]
    module, attribute = path.split(":")
    own = module.split(".")[0] not in OURS
    try:
        found = import_own(module) if own else import_module(module)
        if own and not hasattr(found, attribute):
            raise ConfigError(f"{kind.capitalize()} '{name}' is {path}, but {module} has no {attribute}.")
        return getattr(found, attribute)
    except ModuleNotFoundError as error:
        if own and error.name == module:
            raise ConfigError(
                f"{kind.capitalize()} '{name}' is {path}, but there is no module {module}. Start in its "
                "folder, or install it."
            ) from error
        ours = (error.name or "").split(".")[0] == module.split(".")[0]  # a defect, not a missing package
        if extra is None or ours:
            raise
        raise MissingDependencyError(
            f"{kind.capitalize()} '{name}' needs the package '{error.name}', which is not installed. "
            f"Run: {pip_install(extra)}"
        ) from error
