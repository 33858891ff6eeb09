"""Check for the mesh files of a model before it is compiled, and report all missing ones at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robo_rl.core.errors import ConfigError


def check_meshes(spec: Any, model: Path) -> None:
    """Raise ConfigError for mesh files of an MJCF or URDF that are missing. spec: mujoco.MjSpec, read from
    `model`.
    """
    missing = list(
        dict.fromkeys(mesh.file for mesh in spec.meshes if mesh.file and not _path(spec, mesh.file).is_file())
    )
    if not missing:
        return
    named = "a mesh that is not there" if len(missing) == 1 else f"{len(missing)} meshes that are not there"
    ros = any(name.startswith("package://") for name in missing)
    place = (
        "paths from its own folder: packages of ROS are not searched"
        if ros
        else _path(spec, missing[0]).absolute()
    )
    raise ConfigError(
        f"{model} names {named}: {', '.join(missing)}. Expected {place}. Put the files there, or correct the "
        "model."
    )


def _path(spec: Any, file: str) -> Path:
    """Path where MuJoCo's compiler looks for the mesh."""
    name = Path(file).name if spec.strippath else file
    return Path(spec.modelfiledir, spec.meshdir, name)
