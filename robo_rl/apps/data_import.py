"""`robo-rl data import`: a zarr v2 replay buffer becomes a dataset."""

from __future__ import annotations

from pathlib import Path

from robo_rl.apps.progress import progress, show
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.data.importers import KeyMap, import_replay_buffer
from robo_rl.data.pusht import pusht_keys, pusht_spec


def main(config: DataImportConfig) -> int:
    """Import, and say what came of it."""
    _refuse_recording(Path(config.source))
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


def _refuse_recording(source: Path) -> None:
    """The recorder's files are topics as they came, not episodes: there is no observation and no action in them."""
    if source.suffix == ".mcap" or (source / "metadata.yaml").is_file() or any(source.glob("episode_*/*.mcap")):
        raise ConfigError(
            f"{source} is a recording of topics (MCAP), and no verb turns one into a dataset yet. Read it by `rosbags` "
            "or `ros2 bag`, and write its episodes by DatasetWriter: docs/data.md, 'Write it'."
        )


def contract(config: DataImportConfig) -> tuple[EnvSpec, KeyMap]:
    """The environment that the data belong to, and which array becomes which key."""
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
