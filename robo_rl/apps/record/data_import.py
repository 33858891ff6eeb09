"""`robo-rl data import`: recordings of a robot, or a zarr v2 replay buffer, become a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path

from robo_rl.apps.runs.progress import progress, show
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import EnvSpec
from robo_rl.data.importers import KeyMap, import_replay_buffer
from robo_rl.data.pusht import pusht_keys, pusht_spec

RECORDED = (
    "robot",
    "rate_hz",
    "action",
    "cameras",
    "image_width",
    "depth",
    "velocities",
    "goal",
    "success",
    "gap_s",
    "idle_s",
    "namespace",
)


def main(config: DataImportConfig) -> int:
    """Import, and say what came of it."""
    if not Path(config.source).exists():
        raise DataError(
            f"source={config.source} does not exist. Give a folder of recordings, one of them, or a zarr v2 "
            "replay buffer."
        )
    if _recorded(Path(config.source)) or (config.robot is not None and not _is_zarr(Path(config.source))):
        from robo_rl.apps.record.data_recordings import import_recordings

        _refuse_foreign(config, ("keys",), "recordings")
        return import_recordings(config)
    _refuse_foreign(config, RECORDED, "a replay buffer")
    spec, keys = contract(config)
    with progress(None, "import", "episode") as bar:
        count = import_replay_buffer(
            config.source,
            config.out,
            spec,
            keys,
            image_codec="jpeg" if config.image_codec == "jpeg" else "raw",
            limit=config.limit,
            task=config.task,
            progress=show(bar),
        )
    print(f"Imported {count} episodes into {config.out}\nNext:   robo-rl data info path={config.out}")
    return 0


def _recorded(source: Path) -> bool:
    """Are these topics as they came, rather than a replay buffer?"""
    files = (source, *source.glob("*"), *source.glob("*/*")) if source.is_dir() else (source,)
    return any(path.suffix in (".mcap", ".db3") or path.name == "metadata.yaml" for path in files)


def _is_zarr(source: Path) -> bool:
    return source.suffix in (".zarr", ".zip") or (source / ".zgroup").exists()


def _refuse_foreign(config: DataImportConfig, names: Sequence[str], what: str) -> None:
    """Raises ConfigError for a setting that says nothing about what is imported."""
    usual = {item.name: item for item in fields(DataImportConfig)}
    for name in names:
        item = usual[name]
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if getattr(config, name) != default:
            raise ConfigError(f"{name}= says nothing about {what}, which {config.source} is; leave it out.")


def contract(config: DataImportConfig) -> tuple[EnvSpec, KeyMap]:
    """The environment that the data belong to, and which array becomes which key."""
    if config.env is None:
        raise ConfigError(
            f"Say which environment the buffer {config.source} belongs to: env=pusht/state, or another one's "
            "name."
        )
    if config.env.startswith("pusht/"):
        return pusht_spec(config.env), parse_keys(config.keys) or pusht_keys(config.env)
    from sim.registry import make_env  # simulators are needed for other environments only

    if not config.keys:
        raise ConfigError(
            f"Say which array of the buffer becomes which key of {config.env}: "
            "keys=['state:data/state','action:data/action']."
        )
    env = make_env(config.env, 1)
    try:
        return env.spec, parse_keys(config.keys)
    finally:
        env.close()


def parse_keys(pairs: list[str]) -> dict[str, str]:
    """["state:data/state"] -> {"state": "data/state"}."""
    for pair in pairs:
        if pair.count(":") != 1:
            raise ConfigError(f"Found '{pair}' in keys, expected key:array, e.g. state:data/state.")
    return {key: array for key, array in (pair.split(":") for pair in pairs)}
