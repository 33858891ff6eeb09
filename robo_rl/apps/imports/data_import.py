"""`robo-rl data import`: convert recordings of a robot, a replay buffer, or a dataset of another program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import MISSING, fields, replace
from pathlib import Path

from robo_rl.apps.imports.data_foreign import assumed_rate, import_foreign, require_rate, source_rate
from robo_rl.apps.imports.import_report import report_import
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.atomic_dataset import refuse_existing
from robo_rl.data.episodes.rehearsal import rehearsal
from robo_rl.data.episodes.schema import DATASET_JSON, Codec
from robo_rl.data.formats.registry import recognised
from robo_rl.data.formats.replay_buffer import exported_contract, exported_rate
from robo_rl.data.importers import (
    KeyMap,
    array_shape,
    import_replay_buffer,
    inferred_contract,
    longest_episode,
)
from robo_rl.data.pusht import pusht_keys, pusht_spec
from robo_rl.runs.outputs import check_folder
from robo_rl.runs.progress import progress_callback

OF_A_ROBOT = ("robot", "rate_hz", "image_width", "velocities", "goal")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)  # <owner>/<name>
OF_RECORDINGS = ("action", "cameras", "depth", "success", "gap_s", "idle_s", "namespace")


def main(config: DataImportConfig) -> int:
    """Import, and print the number of episodes and the next command. A dry run reads and converts everything,
    so that it ends like the import itself.
    """
    if not config.dry_run:
        return convert(config)
    with rehearsal():
        return convert(config)


def convert(config: DataImportConfig) -> int:
    """Import a source of any kind."""
    source = Path(config.source)
    if not source.exists():
        raise DataError(
            f"source={config.source} does not exist. Give a folder of recordings, one of them, a zarr v2 "
            f"replay buffer, a LeRobot or RLDS folder, or a robomimic file.{_download(config)}"
        )
    refuse_existing(config.out)  # before the source is read, which may take an hour
    check_folder("out", config.out)
    if (source / DATASET_JSON).exists():
        raise DataError(
            f"{source} is a dataset of robo-rl, which needs no import: robo-rl train data={source}. Its "
            "environment stays the one that it was recorded in."
        )
    if source.suffix in (".npz", ".npy"):
        raise DataError(
            f"{source} is a numpy file, which is not read. Write its arrays as a zarr v2 replay buffer, to "
            "import with keys=[state:data/<array>,action:data/<array>], or by DatasetWriter in Python "
            '(docs/data.md, "From arrays of your own" and "Write it").'
        )
    if (kind := recognised(source)) != "rlds":
        _refuse_foreign(config, ("split",), "no RLDS dataset")
    if kind is not None:
        _refuse_foreign(config, OF_RECORDINGS, "a dataset of another program")
        return import_foreign(config, kind, parse_keys(config.keys))
    if not _recorded(source) and not _is_zarr(source):
        raise DataError(_unknown(source))
    if _recorded(source):
        from robo_rl.apps.imports.data_recordings import import_recordings

        _refuse_foreign(config, ("keys",), "recordings")
        return import_recordings(config)
    _refuse_foreign(config, OF_RECORDINGS, "a replay buffer")
    if config.env is None and config.robot is None and not config.keys and exported_contract(source):
        return import_foreign(config, "zarr", {})
    if config.robot is None:
        others = [name for name in OF_A_ROBOT if name != "rate_hz"]
        _refuse_foreign(config, others, "a replay buffer without robot=")
    notes: list[str] = []
    spec, keys = contract(config, notes)
    codec: Codec = "jpeg" if config.image_codec == "jpeg" else "raw"
    with progress_callback("import", "episode") as advance:
        count = import_replay_buffer(
            source, config.out, spec, keys, image_codec=codec, limit=config.limit, task=config.task,
            notes=notes, progress=advance,
        )  # fmt: skip
    report_import(config, counted(count, "episode"), notes=notes)
    return 0


def _download(config: DataImportConfig) -> str:
    """Sentence with the commands for a source that may be a dataset of the Hub; empty for another one, such
    as a name in a folder that exists.
    """
    if not HUB_ID.fullmatch(config.source) or Path(config.source).parent.is_dir():
        return ""
    folder = f"downloads/{config.source.partition('/')[2]}"
    given = {"robot": config.robot, "env": config.env, "keys": config.keys or None}
    return (
        f" A dataset of the Hugging Face Hub is downloaded first: hf download {config.source} --repo-type "
        f"dataset --local-dir {folder}, then {command('data import', source=folder, **given, out=config.out)}"
    )


def _unknown(source: Path) -> str:
    """What can be done with a source in no format that is read."""
    if source.suffix == ".rrd" or any(source.glob("*.rrd")):
        return (
            f"{source} is an export for the Rerun viewer, which no program imports. Import the dataset that "
            "it was exported from, or another export of it."
        )
    return (
        f"{source} is in no format that is read: expected recordings (a folder with a metadata.yaml, as the "
        "recorder and `ros2 bag record` write, or an .mcap file), a LeRobot folder (meta/info.json), an RLDS "
        "folder (features.json), a robomimic file (HDF5), or a zarr replay buffer with "
        "keys=[state:data/<array>,action:data/<array>]. Data of your own: DatasetWriter in Python "
        '(docs/data.md, "From arrays of your own").'
    )


def _recorded(source: Path) -> bool:
    """True for recordings of topics (MCAP, rosbag2)."""
    files = (source, *source.glob("*"), *source.glob("*/*")) if source.is_dir() else (source,)
    return any(path.suffix in (".mcap", ".db3") or path.name == "metadata.yaml" for path in files)


def _is_zarr(source: Path) -> bool:
    return source.suffix in (".zarr", ".zip") or any(
        (source / name).exists() for name in (".zgroup", "zarr.json")
    )


def _refuse_foreign(config: DataImportConfig, names: Sequence[str], what: str) -> None:
    """Raise ConfigError for a setting that does not apply to this kind of source."""
    usual = {item.name: item for item in fields(DataImportConfig)}
    for name in names:
        item = usual[name]
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if getattr(config, name) != default:
            raise ConfigError(f"{name}= does not apply to {what}, which {config.source} is; leave it out.")


def contract(config: DataImportConfig, notes: list[str]) -> tuple[EnvSpec, KeyMap]:
    """Contract of the buffer's data, and the array of each key. notes: gets sentences on what is assumed."""
    keys = parse_keys(config.keys)
    if config.env is not None and config.robot is not None:
        raise ConfigError("Give env= or robot=, not both: each of them states the contract.")
    if config.env is not None and config.env.startswith("pusht/"):
        spec = pusht_spec(config.env)
        require_rate(config, source_rate(config, exported_rate(config.source)), spec)
        return spec, keys or pusht_keys(config.env)
    if not keys:
        of = config.env or config.robot
        raise ConfigError(
            f"Name the array of the buffer {config.source} for each key{f' of {of}' if of else ''}: "
            "keys=['state:data/state','action:data/action']. The published file of Push-T needs only "
            "env=pusht/state."
        )
    rate_hz = source_rate(config, exported_rate(config.source))
    if config.env is None and config.robot is None:
        if rate_hz is None:
            raise ConfigError(
                f"The buffer {config.source} states no rate. Give rate_hz=<frames per second>, or robot= or "
                "env=, which also state units and limits."
            )
        return inferred_contract(config.source, keys, rate_hz, notes), keys
    if config.env is None:
        spec, of = _robot_contract(config, keys, rate_hz), f"the description of {config.robot}"
        if rate_hz is None:  # the highest that is possible
            notes.append(f"{assumed_rate(of, spec)} If it is another: rate_hz=<frames per second>.")
        return spec, keys
    spec = _simulated(config.env)
    require_rate(config, rate_hz, spec)
    if rate_hz is None:
        notes.append(assumed_rate(spec.name, spec))
    return spec, keys


def _simulated(env: str) -> EnvSpec:
    from sim.registry import make_env  # only these buffers need a simulator

    with closing(make_env(env, 1)) as made:
        return made.spec


def _robot_contract(config: DataImportConfig, keys: Mapping[str, str], rate_hz: float | None) -> EnvSpec:
    """Contract of a robot's buffer: its description, with the cameras that `keys` names.

    velocities=none is decided by the width of the state.
    """
    from hardware.description import load_description
    from hardware.layout import parse_unit
    from robo_rl.apps.imports.recordings_layout import robot_spec

    robot = load_description(str(config.robot))
    pictures = [key for key in keys if key.startswith(("image.", "depth."))]
    velocities = config.velocities
    if velocities is None:
        goal = sum(len(segment.names) for segment in parse_unit(config.goal)) if config.goal else 0
        width = array_shape(config.source, keys.get("state", ""))[-1]
        velocities = width - goal == 2 * len(robot.names)
    spec = robot_spec(robot, pictures, config.image_width, velocities, config.goal, rate_hz)
    return replace(spec, max_episode_steps=longest_episode(config.source))


def parse_keys(pairs: list[str]) -> dict[str, str]:
    """["state:data/state"] -> {"state": "data/state"}."""
    for pair in pairs:
        if pair.count(":") != 1:
            raise ConfigError(f"Found '{pair}' in keys, expected key:array, e.g. state:data/state.")
    return {key: array for key, array in (pair.split(":") for pair in pairs)}
