"""`robo-rl data import`: a zarr v2 replay buffer becomes a dataset."""

from __future__ import annotations

from robo_rl.apps.progress import progress, show
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.data.importers import KeyMap, import_replay_buffer
from robo_rl.data.pusht import pusht_keys, pusht_spec


def main(config: DataImportConfig) -> int:
    """Import, and say what came of it."""
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
