"""User modules: those named on the command line, and those that register environments, tasks and engines when
they are imported.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from robo_rl.core.errors import ConfigError

PLUGINS = "ROBO_RL_PLUGINS"  # environment variable: names of modules, separated by commas


def import_own(name: str) -> ModuleType:
    """The module of this name: an installed one, or else one in the working directory, which then stays on
    the path for its other modules and for worker processes.

    Only a named module does this. If the working directory were always on the path, a folder such as wandb/
    would pass for an installed package. Raises ModuleNotFoundError.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not lacks(error, name):
            raise  # a package that the user's module needs
        here, first = Path.cwd(), name.partition(".")[0]
        if str(here) in sys.path or not ((here / f"{first}.py").exists() or (here / first).is_dir()):
            raise
    sys.path.append(str(here))
    return import_module(name)


def lacks(error: ModuleNotFoundError, name: str) -> bool:
    """True if the module of this name, or a package that holds it, is what was not found."""
    return error.name is not None and f"{name}.".startswith(f"{error.name}.")


NOT_FOUND = "which is neither installed nor in the folder in which robo-rl was started"  # of a module


def load_plugins() -> None:
    """Import the modules that the environment variable ROBO_RL_PLUGINS names.

    Raises ConfigError for a module that is not found; errors inside a module are not caught.
    """
    for name in filter(None, (word.strip() for word in os.environ.get(PLUGINS, "").split(","))):
        try:
            import_own(name)
        except ModuleNotFoundError as error:
            if not lacks(error, name):
                raise
            raise ConfigError(
                f"{PLUGINS} names the module '{name}', {NOT_FOUND}. Start in its folder, or install it."
            ) from error
