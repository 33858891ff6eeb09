"""Inputs of a run: the policies and demonstrations that it starts from, which a resumed run reads again.

A checkpoint holds neither the base nor the normaliser that is fitted to demonstrations, so a resumed run with
other inputs would mix two policies.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from policies.checkpoint import read_policy_json
from policies.saved_files import POLICY_FILE
from robo_rl.apps.training.train_data import TrainData
from robo_rl.conf.finetune import ON_POLICY, FinetuneVerb
from robo_rl.core.errors import CheckpointError, DataError, RoboRLError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.text.counts import counted
from robo_rl.data.selection import select_episodes
from robo_rl.data.store import EpisodeStore
from robo_rl.runs.loaded_policy import find_policy, trained_noise
from robo_rl.runs.run_dir import INPUTS_FILE, RunDir, checkpoint_of

Fingerprint = dict[str, Any]  # checksums and counts of one input
DEMOS = "demos"  # setting of the one input that is no policy


def check_there(out: str, paths: dict[str, str | None], *, resume: bool) -> None:
    """Raise CheckpointError for a policy from which the resumed run in `out` was started, and which is gone:
    the advice of `find_policy` is to name another one, with which no run is resumed.

    paths: by the name of the setting.
    """
    if not resume or not (Path(out) / "run.json").is_file():
        return
    saved = RunDir.open(out).config()
    for name, path in paths.items():
        if path is None or saved.get(name) != path:
            continue
        try:
            find_policy(path)
        except RoboRLError as error:
            lost = "holds no policy any more" if Path(path).exists() else "is gone"
            of_training = " A training deletes its older checkpoints: keep_checkpoints= keeps more of them."
            raise CheckpointError(
                f"{name}={path}, from which {out} was started, {lost}, and {out} cannot be resumed without "
                f"it. Put it back in this place, or start a new run.{of_training if '@' in path else ''}"
            ) from error


def keep_tuning_inputs(run: RunDir, config: FinetuneVerb) -> None:
    """Record or check what `config` starts from: base or `init`, and demonstrations; see `keep_inputs`."""
    inputs: dict[str, Fingerprint] = {}
    if config.base is not None:
        inputs["base"] = policy_fingerprint(find_policy(config.base))
    elif config.init is not None:  # gives the normaliser; its networks are in every checkpoint
        inputs["init"] = policy_fingerprint(find_policy(config.init))
    if config.demos is not None:
        inputs[DEMOS] = demos_fingerprint(config.demos)
    ready = run.latest() is not None and (config.base is not None or run.policy.is_dir())
    off_policy = config.method.name != "auto" and config.method.algorithm not in ON_POLICY
    instead = f", from the networks of this one by init={run.path}" if ready and off_policy else ""
    paths = {"base": config.base, "init": config.init, DEMOS: config.demos}
    keep_inputs(run, inputs, paths, resume=config.resume, instead=instead)


def keep_inputs(
    run: RunDir,
    inputs: dict[str, Fingerprint],
    paths: dict[str, str | None],
    *,
    resume: bool,
    instead: str = "",
) -> None:
    """Write the fingerprints of a new run's inputs into inputs.json, and print a line on each policy that may
    be deleted before it is resumed; compare them when it is resumed.

    inputs, paths: by the name of the setting. instead: end of the advice to start a new run. Raises DataError
    that names the input that has changed. A run without the file is older than it, and is resumed unchecked.
    """
    file = run.path / INPUTS_FILE
    if not resume:
        write_json(file, inputs)
        for note in filter(
            None, (may_be_deleted(run, name, paths[name]) for name in inputs if name != DEMOS)
        ):
            print(note)
    elif file.exists():
        for name, begun in read_json(file).items():
            now = inputs.get(name, begun)
            if any(now.get(key, value) != value for key, value in begun.items()):
                what = f"{name}={paths[name]} is not what {run.path} was started with{_counts(begun, now)}"
                raise DataError(
                    f"{what}, so a resumed run would mix the two. Restore it, or start a new run{instead}."
                )


def may_be_deleted(run: RunDir, name: str, path: str | None) -> str:
    """Note on a policy that is a checkpoint of a training which has not ended, and so deletes it after some
    more; else empty. name: of the setting.
    """
    folder = find_policy(str(path))
    of = checkpoint_of(folder)
    if of is None or (RunDir(of[0]).policy / POLICY_FILE).is_file():
        return ""
    return (
        f"Note: {name}={path} is a checkpoint of a training that has not ended and deletes its older "
        f"checkpoints, but {run.path} cannot be resumed without it. To be safe, give {name}=<a copy of "
        f"{folder}>."
    )


def _counts(begun: Fingerprint, now: Fingerprint) -> str:
    """Episodes then and now, in brackets; empty for policies."""
    if "episodes" not in begun:
        return " (another policy is there now)"
    then, there = (
        f"{counted(each['episodes'], 'episode')}, {each['frames']} frames" for each in (begun, now)
    )
    return f" ({then} then; {there} now)" if then != there else f" ({then}, changed since)"


def policy_fingerprint(folder: Path) -> Fingerprint:
    """Checksums of what a policy's actions depend on; notes on its training and its success may change."""
    saved = read_policy_json(folder)  # whose checksum of the weights was checked when they were loaded
    acts = [saved["kind"], saved["config"], saved["env"], trained_noise(folder)]
    return {
        "settings_crc32": zlib.crc32(json.dumps(acts, sort_keys=True).encode()),
        "weights_crc32": saved["weights_crc32"],
    }


def demos_fingerprint(demos: str) -> Fingerprint:
    """Fingerprint of all complete episodes of a dataset, with their success labels."""
    data = TrainData((select_episodes(EpisodeStore(demos, complete_only=True), "all"),))
    labels = str([episode.success for episode in data.episodes])
    return data.fingerprint() | {"labels_crc32": zlib.crc32(labels.encode())}
