"""Requirements of setup.cfg, pins of requirements.lock, and installed packages."""

from __future__ import annotations

import configparser
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def requirements(text: str) -> list[Requirement]:
    return [
        Requirement(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]


def declared() -> dict[str, list[Requirement]]:
    """Extra (or "core") -> requirements in setup.cfg."""
    config = setup_cfg()
    extras = {name: requirements(text) for name, text in config["options.extras_require"].items()}
    return {"core": requirements(config["options"]["install_requires"])} | extras


def locked() -> dict[str, str]:
    """Canonical name -> pinned version, for this Python."""
    pins = requirements((ROOT / "requirements.lock").read_text())
    meant = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in meant}


def as_locked() -> set[str]:
    """Canonical names of packages that are installed in the pinned version."""
    found = {}
    for name in locked():
        try:
            found[name] = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return {name for name, version in locked().items() if found.get(name) == version}
