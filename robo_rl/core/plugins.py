"""User modules that register environments, tasks and engines when they are imported."""

from __future__ import annotations

import os
from importlib import import_module

from robo_rl.core.errors import ConfigError

PLUGINS = "ROBO_RL_PLUGINS"  # environment variable: names of modules, separated by commas


def load_plugins() -> None:
    """Import the modules that the environment variable ROBO_RL_PLUGINS names.

    Raises ConfigError for a module that is not found; errors inside a module are not caught.
    """
    for name in filter(None, (word.strip() for word in os.environ.get(PLUGINS, "").split(","))):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ConfigError(
                f"{PLUGINS} names the module '{name}', which is not found. Start robo-rl in the module's "
                "folder with PYTHONPATH=. set, or install the module."
            ) from error
