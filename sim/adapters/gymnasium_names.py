"""Names of Gymnasium environments as users write them: without a suite, or with the file of their module."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from robo_rl.core.errors import ConfigError
from robo_rl.core.text.nearest import is_misspelt

_VERSION = re.compile(r"-v\d+$")
_FILE = re.compile(r"(?:gym/)?(?P<file>[^:]+\.py)(?::(?P<id>.*))?")
_REGISTERED = re.compile(r"""register\(\s*(?:id\s*=\s*)?["']([^"']+)["']""")


def in_gymnasium(name: str) -> str:
    """Id by which Gymnasium may know an environment without a suite: Pendulum-v1, my_envs:Mine-v0; else "".

    A version that is not registered stands for the newest one.
    """
    if re.fullmatch(r"[\w.]+:[\w./-]+", name):
        return name
    if find_spec("gymnasium") is None:
        return ""
    from gymnasium import registry

    ids: dict[str, Any] = registry
    for each in filter(None, (name, name.partition("/")[2])):
        if each in ids:
            return each
        bare = _VERSION.sub("", each)
        if versions := [int(i.removeprefix(f"{bare}-v")) for i in ids if _VERSION.sub("", i) == bare != i]:
            return f"{bare}-v{max(versions)}"
    return ""


def own_environment(name: str, known: Iterable[str]) -> str:
    """Sentence on how to name an environment of one's own, for a name in the form of an id; else "".

    known: names of environments, none of whose tasks is misspelt in `name`.
    """
    tasks = [each.rpartition("/")[2] for each in known]
    if "/" in name or not _VERSION.search(name) or is_misspelt(name, tasks):
        return ""
    return f"If a module of your own registers it, name that, too: env=gym/<module>:{name}"


def check_no_file(name: str) -> None:
    """Raise ConfigError with the right name for one that holds a Python file, such as gym/mine.py:Mine-v0."""
    if (found := _FILE.fullmatch(name)) is None:
        return
    file = Path(found["file"])
    module = ".".join(part for part in file.with_suffix("").parts if part not in (".", "/"))
    env_id = found["id"] or next(iter(_ids_in(file)), "<id that it registers>")
    raise ConfigError(
        f"'{name}' names a file instead of a module. Write the module without .py: gym/{module}:{env_id}"
    )


def _ids_in(file: Path) -> Iterable[str]:
    """Ids that a Python file registers with Gymnasium, as far as they are written out."""
    return _REGISTERED.findall(file.read_text(errors="replace")) if file.is_file() else ()


def names_beside(env_id: str, registry: Iterable[Any]) -> list[str]:
    """Names of the environments of the module in `<module>:<id>`, or of all without any there.

    registry: specifications of environments, as `gymnasium.registry.values()`.
    """
    module, colon, _ = env_id.rpartition(":")
    ids = {spec.id: _module_of(spec.entry_point) for spec in registry}
    if own := [each for each, at in ids.items() if colon and at == module]:
        return [f"gym/{module}:{each}" for each in own]
    return [f"gym/{each}" for each in ids]


def _module_of(entry_point: Any) -> str:
    """Module that holds the class or function which makes an environment."""
    if isinstance(entry_point, str):
        return entry_point.partition(":")[0]
    return str(getattr(entry_point, "__module__", ""))
