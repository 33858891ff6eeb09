"""Bundles: folders with all that a robot needs to run a policy, and the contract of its use.

{manifest.json, policy.json, weights.safetensors, policy.onnx, [refine.onnx], [prefix.onnx]}. The manifest
names observation keys with shapes, units and rates, the action space, limits, normaliser statistics,
horizons, noise, training data and measured success with its interval, and holds a checksum of every file and
of itself. Loading checks all of it and refuses with the reason. It needs no torch, because robot nodes load
bundles. `bundle_writer` writes them.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from policies.saved_files import POLICY_FILE, POLICY_GRAPH, WEIGHTS_FILE
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.files.durable import read_json
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.spec import EnvSpec, dtypes_conflict
from robo_rl.core.text.instruction import to_bytes

FORMAT = 1
MANIFEST = "manifest.json"
OWN_SUM = "sha256"  # key of the manifest's own checksum
Noise = Literal["zero", "gaussian"]
LEAST_HZ, MOST_HZ = 0.1, 100_000.0  # of observations and control
MOST_STEPS = 10_000  # of observations and actions in one decision
MOST_NUMBERS = 1_000_000  # along each axis of a memory
_KEYS = (
    "format",
    "name",
    "env",
    "rates_hz",
    "horizons",
    "noise",
    "normalizer",
    "graphs",
    "training",
    "measured",
    "versions",
    "commit",
    "files",
)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose contract was checked."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    env: EnvSpec = field(repr=False)
    obs_steps: int  # To
    chunk: int  # Tp
    execute: int  # Ta
    noise: Noise
    envelope: FlightEnvelope | None  # of a flight policy
    prefix: Path | None = None  # graph of pictures and words, of a vision-language-action policy
    instruction: str | None = None  # what such a policy does if nothing else is asked for
    memory: tuple[int, int] | None = None  # shape of its memory of earlier decisions, which the caller holds

    def __fspath__(self) -> str:
        """Its folder: a bundle can be given wherever a path of one is expected."""
        return str(self.folder)

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    def graph(self, index: int) -> Path | None:
        """Graph of `sample` (0) or of `refine` (1); None for a policy without `refine`."""
        graphs = self.manifest["graphs"]
        return self.folder / graphs[index]["file"] if index < len(graphs) else None


def load_bundle(folder: Path) -> Bundle:
    """Bundle after checks of format, manifest and checksums. Raises CheckpointError with the reason and a
    remedy.
    """
    bundle = read_bundle(folder)
    for file, entry in bundle.manifest["files"].items():
        _check_content(bundle.folder, file, str(entry["sha256"]))
    return bundle


def read_bundle(folder: Path) -> Bundle:
    """As `load_bundle`, at once however large the files are: their presence and sizes are checked, their
    contents are not. For a loop that cannot wait, before processes that load the bundle.
    """
    folder = existing_folder(folder)
    manifest = _read_manifest(folder)
    try:
        files = {
            str(file): entry.get("bytes") for file, entry in manifest["files"].items() if entry["sha256"]
        }
        needed = {
            POLICY_FILE,
            WEIGHTS_FILE,
            POLICY_GRAPH,
            *(str(graph["file"]) for graph in manifest["graphs"]),
        }
        env, noise = EnvSpec.from_json(manifest["env"]), manifest["noise"]["mode"]
        check_rates({"control_hz": env.control_hz, **manifest["rates_hz"]})
        horizons = manifest["horizons"]
        obs_steps, chunk, execute = (_horizon(horizons, key) for key in ("obs_steps", "chunk", "execute"))
        prefix = _prefix_of(manifest)
        if prefix is not None:
            needed.add(str(prefix["file"]))
        limits = manifest.get("envelope")
        envelope = None if limits is None else FlightEnvelope.from_json(limits)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ConfigError) as error:
        raise CheckpointError(
            f"{folder / MANIFEST} cannot be parsed ({error!r}). Export the bundle again."
        ) from error
    if unlisted := sorted(needed - files.keys()):
        raise CheckpointError(
            f"{folder / MANIFEST} has no checksum for {', '.join(unlisted)}. Export the bundle again."
        )
    for file, size_bytes in files.items():
        _check_file(folder, file, size_bytes)
    if noise not in ("zero", "gaussian"):
        raise CheckpointError(f"{folder / MANIFEST} has noise '{noise}', expected 'zero' or 'gaussian'.")
    # earlier versions have written none
    if (kept := manifest.get(OWN_SUM)) is not None and kept != sha256_of_manifest(manifest):
        raise CheckpointError(
            f"{folder / MANIFEST} is not the one that was exported: its values do not have the {OWN_SUM} "
            "that it states. It was changed, or damaged in transfer; copy the bundle again."
        )
    graph, words = (None, None) if prefix is None else (folder / prefix["file"], prefix["instruction"])
    memory = None if prefix is None or prefix["memory"] is None else tuple(prefix["memory"])
    return Bundle(folder, manifest, env, obs_steps, chunk, execute, noise, envelope, graph, words, memory)


def _prefix_of(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Entry of the prefix; None for a policy without. Raises ConfigError or KeyError if it is not one."""
    if manifest.get("prefix") is None:
        return None
    entry = dict(manifest["prefix"])
    check_rates({"prefix": entry["rate_hz"]})
    unknown = [key for key in entry["inputs"] if key not in manifest["env"]["obs"]]
    if unknown or not all(isinstance(name, str) for name in (*entry["outputs"], *entry["cameras"])):
        raise ConfigError(f"The prefix reads {entry['inputs']}, which are no observations of the policy.")
    if entry["instruction"] is not None:
        to_bytes(str(entry["instruction"]), stored=True)
    memory = entry.setdefault("memory", None)
    if memory is not None and not (
        len(memory) == 2 and all(isinstance(each, int) and 1 <= each <= MOST_NUMBERS for each in memory)
    ):
        raise ConfigError(f"The memory has shape {memory}, which no policy has.")
    return entry


def check_rates(rates_hz: Mapping[str, Any]) -> None:
    """Raise ConfigError for a rate that no robot has; periods and timeouts are computed from rates."""
    for name, rate_hz in rates_hz.items():
        is_number = isinstance(rate_hz, int | float) and not isinstance(rate_hz, bool)
        if not (is_number and LEAST_HZ <= rate_hz <= MOST_HZ):
            raise ConfigError(
                f"The rate of '{name}' is {rate_hz!r}: {LEAST_HZ:g} to {MOST_HZ:g} Hz was expected."
            )


def _horizon(horizons: Mapping[str, Any], key: str) -> int:
    steps = horizons[key]
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= MOST_STEPS:
        raise ConfigError(
            f"{key} of the horizons is {steps!r}: a whole number from 1 to {MOST_STEPS} was expected."
        )
    return steps


def check_env(bundle: Bundle, env: EnvSpec) -> None:
    """Raise CheckpointError that names every way in which `env` violates the bundle's contract."""
    if faults := env_faults(bundle.env, env):
        raise CheckpointError(
            f"The bundle {bundle.folder} was made for {bundle.env.name} and does not fit {env.name}: "
            f"{'; '.join(faults)}. Use the robot or environment it was made for, or train on this one."
        )


def env_faults(ours: EnvSpec, env: EnvSpec) -> list[str]:
    """Ways in which `env` violates the contract `ours` of a policy; `env` may offer further observations."""
    faults = []
    for key, spec in ours.obs.items():
        found = env.obs.get(key)
        if found is None:
            faults.append(f"observation '{key}' is missing (it offers {', '.join(sorted(env.obs))})")
        elif found.shape != spec.shape or dtypes_conflict(found.dtype, spec.dtype):
            faults.append(f"'{key}' is {found.dtype} {found.shape}, expected {spec.dtype} {spec.shape}")
        elif found.unit and spec.unit and found.unit != spec.unit:
            faults.append(f"'{key}' is in '{found.unit}', expected '{spec.unit}'")
    if (env.action.low, env.action.high) != (ours.action.low, ours.action.high):
        faults.append(
            f"actions are limited to {env.action.low}..{env.action.high}, expected {ours.action.low}.."
            f"{ours.action.high}"
        )
    if env.action.unit and ours.action.unit and env.action.unit != ours.action.unit:
        faults.append(f"actions are in '{env.action.unit}', expected '{ours.action.unit}'")
    if abs(env.control_hz - ours.control_hz) > 1e-3 * ours.control_hz:
        faults.append(f"it runs at {env.control_hz:g} Hz, expected {ours.control_hz:g} Hz")
    return faults


def sha256_of_manifest(manifest: Mapping[str, Any]) -> str:
    """Checksum of a manifest's values but the checksum itself, independent of order and spaces."""
    body = {key: value for key, value in manifest.items() if key != OWN_SUM}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def existing_folder(folder: Path) -> Path:
    """The folder, or the older bundle that a killed writer had moved aside and not yet replaced."""
    if folder.exists():
        return folder
    aside = sorted(
        folder.parent.glob(f".{glob.escape(folder.name)}.old.*"), key=lambda path: path.stat().st_mtime
    )
    return aside[-1] if aside else folder


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        data = read_json(path)
    except DataError as error:
        if path.exists():
            raise CheckpointError(f"{folder} is not a bundle: {error}") from error
        raise CheckpointError(
            f"{not_a(folder, 'a bundle', MANIFEST)} Give the folder that `robo-rl export "
            "policy=<run or policy folder> out=<folder>` wrote."
        ) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise CheckpointError(
            f"{path} has format {found!r}, this version reads {FORMAT}. Use the robo-rl that wrote it, or "
            "export again."
        )
    if missing := [key for key in _KEYS if key not in data]:
        raise CheckpointError(
            f"{path} lacks {', '.join(missing)}. It was edited or truncated; export the bundle again."
        )
    return data


def _check_file(folder: Path, file: str, size_bytes: int | None) -> None:
    path = folder / file
    if Path(file).name != file:
        raise CheckpointError(
            f"{folder / MANIFEST} names '{file}', which is not a file of the bundle. Export it again."
        )
    if not path.is_file():
        raise CheckpointError(f"The bundle {folder} lacks {file}. Copy all of it, or export it again.")
    if size_bytes is not None and (found := path.stat().st_size) != size_bytes:
        raise CheckpointError(
            f"{path} is not the file that was exported ({found} bytes, the manifest says {size_bytes}). "
            "It was changed or damaged in transfer; copy the bundle again."
        )


def _check_content(folder: Path, file: str, sha256: str) -> None:
    path = folder / file
    if (found := sha256_of(path)) != sha256:
        raise CheckpointError(
            f"{path} is not the file that was exported (sha256 {found[:12]}…, the manifest says "
            f"{sha256[:12]}…). It was changed or damaged in transfer; copy the bundle again."
        )
