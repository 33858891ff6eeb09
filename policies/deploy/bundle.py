"""Bundles: one folder with all that a robot needs to run a policy, and the contract of its use.

{manifest.json, policy.json, weights.safetensors, policy.onnx, [refine.onnx]}. The manifest names observation
keys with shapes, units and rates, the action space, limits, normaliser statistics, horizons, noise, training
data and measured success with its interval, and holds a checksum of every file. Loading checks all of it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from policies.checkpoint import POLICY_FILE, WEIGHTS_FILE, save_policy
from policies.deploy.export import POLICY_GRAPH, ExportedGraph, export_policy, normalizer_statistics
from policies.registry import SavedPolicy
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.core.files.describe_path import describe_path
from robo_rl.core.files.durable import exchange, fsync_dir, read_json, write_json
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.protocols import Obs
from robo_rl.core.provenance import commit, versions
from robo_rl.core.spec import EnvSpec

FORMAT = 1
MANIFEST = "manifest.json"
Noise = Literal["zero", "gaussian"]
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
    """A folder whose contract was checked."""

    folder: Path
    manifest: dict[str, Any]
    env: EnvSpec
    obs_steps: int  # To
    chunk: int  # Tp
    execute: int  # Ta
    noise: Noise
    envelope: FlightEnvelope | None  # of a flight policy

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    def graph(self, index: int) -> Path | None:
        """Graph of `sample` (0) or of `refine` (1); None for a policy without `refine`."""
        graphs = self.manifest["graphs"]
        return self.folder / graphs[index]["file"] if index < len(graphs) else None


def write_bundle(
    folder: Path,
    policy: SavedPolicy,
    env: EnvSpec,
    *,
    name: str,
    noise: Noise,
    training: Mapping[str, Any],
    measured: Mapping[str, Any] | None = None,
    rates_hz: Mapping[str, float] | None = None,
    envelope: FlightEnvelope | None = None,
    example: Obs | None = None,
) -> Bundle:
    """Export and write a bundle; the folder appears complete or not at all, and replaces an older bundle.

    training: a JSON note on data, method, seeds. measured: {"k", "n", "wilson95", ...}, None when never
    evaluated. rates_hz: rate of each observation key, the control rate unless given. envelope: of a flight
    policy, for the safety filter. example: see `export_policy`.
    """
    _check_target(folder)
    _check_measured(measured)
    _clear(folder, "partial")
    partial = folder.with_name(f".{folder.name}.partial.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        save_policy(partial, policy, training)
        graphs = export_policy(policy, partial, example)
        body = _manifest(policy, env, name, noise, training, measured, rates_hz or {}, graphs)
        if envelope is not None:
            body["envelope"] = envelope.to_json()
        write_json(partial / MANIFEST, body | {"files": _checksums(partial)})
        _swap(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return load_bundle(folder)


def load_bundle(folder: Path) -> Bundle:
    """Check format, manifest and checksums. Raises CheckpointError with the reason and what to do."""
    folder = _standing(folder)
    manifest = _read_manifest(folder)
    for file, entry in manifest["files"].items():
        _check_file(folder, file, entry["sha256"])
    horizons = manifest["horizons"]
    try:
        env, noise = EnvSpec.from_json(manifest["env"]), manifest["noise"]["mode"]
        steps = int(horizons["obs_steps"]), int(horizons["chunk"]), int(horizons["execute"])
        limits = manifest.get("envelope")
        envelope = None if limits is None else FlightEnvelope.from_json(limits)
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(
            f"{folder / MANIFEST} cannot be understood ({error!r}). Export the bundle again."
        ) from error
    if noise not in ("zero", "gaussian"):
        raise CheckpointError(f"{folder / MANIFEST} asks for noise '{noise}', expected 'zero' or 'gaussian'.")
    return Bundle(folder, manifest, env, *steps, noise=noise, envelope=envelope)


def check_env(bundle: Bundle, env: EnvSpec) -> None:
    """Raise CheckpointError naming every way in which `env` breaks the bundle's contract."""
    ours, faults = bundle.env, []
    for key, spec in ours.obs.items():
        found = env.obs.get(key)
        if found is None:
            faults.append(f"observation '{key}' is missing (it offers {', '.join(sorted(env.obs))})")
        elif (found.shape, found.dtype) != (spec.shape, spec.dtype):
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
    if faults:
        raise CheckpointError(
            f"The bundle '{bundle.name}' was made for {ours.name} and does not fit {env.name}: "
            f"{'; '.join(faults)}. Use the robot or environment it was made for, or train on this one."
        )


def _manifest(
    policy: SavedPolicy,
    env: EnvSpec,
    name: str,
    noise: Noise,
    training: Mapping[str, Any],
    measured: Mapping[str, Any] | None,
    rates_hz: Mapping[str, float],
    graphs: list[ExportedGraph],
) -> dict[str, Any]:
    used = {key: asdict(spec) for key, spec in policy.obs_spec.items()}
    statistics = normalizer_statistics(policy)
    return {
        "format": FORMAT,
        "name": name,
        "env": env.to_json() | {"obs": used, "action": asdict(policy.action_spec)},
        "rates_hz": {key: rates_hz.get(key, env.control_hz) for key in used},
        "horizons": {"obs_steps": policy.obs_steps, "chunk": policy.chunk, "execute": policy.execute},
        "noise": {"mode": noise, "shape": [policy.chunk, policy.action_spec.dim]},
        "normalizer": {
            key: {"center": c.tolist(), "scale": s.tolist()} for key, (c, s) in statistics.items()
        },
        "graphs": [graph.to_json() for graph in graphs],
        "training": dict(training),
        "measured": None if measured is None else dict(measured),
        "versions": versions(),
        "commit": commit(),
    }


def _check_target(folder: Path) -> None:
    """Raise ConfigError unless the target is absent, an empty folder or an older bundle."""
    if (
        folder.exists()
        and not (folder / MANIFEST).is_file()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise ConfigError(
            f"{folder} exists and is not a bundle. Choose another output folder, or remove it yourself."
        )


def _check_measured(measured: Mapping[str, Any] | None) -> None:
    if measured is not None and (missing := {"k", "n", "wilson95"} - measured.keys()):
        raise ConfigError(
            f"A measured success needs k, n and wilson95, {sorted(missing)} missing. Pass a full result."
        )


def _checksums(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        path.name: {"sha256": _sha256(path), "bytes": path.stat().st_size}
        for path in sorted(folder.iterdir())
    }


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _swap(partial: Path, folder: Path) -> None:
    """Put the new folder in place and remove an older one. A kill at any instant leaves one of the two."""
    if not folder.exists():
        partial.replace(folder)
    elif not exchange(partial, folder):
        old = folder.with_name(f".{folder.name}.old.{os.getpid()}")
        folder.replace(old)  # a reader finds it there, see `_standing`
        try:
            partial.replace(folder)
        except OSError:
            old.replace(folder)
            raise
    fsync_dir(folder.parent)
    shutil.rmtree(partial, ignore_errors=True)
    _clear(folder, "old")


def _standing(folder: Path) -> Path:
    """The folder; where it is missing, the older one that a killed writer had moved aside."""
    if folder.exists():
        return folder
    aside = sorted(
        folder.parent.glob(f".{glob.escape(folder.name)}.old.*"), key=lambda path: path.stat().st_mtime
    )
    return aside[-1] if aside else folder


def _clear(folder: Path, kind: str) -> None:
    """Remove leftovers of writers of this folder, killed ones included."""
    for path in folder.parent.glob(f".{glob.escape(folder.name)}.{kind}.*"):
        pid = path.suffix[1:]
        if pid == str(os.getpid()) or not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        data = read_json(path)
    except DataError as error:
        if path.exists():
            raise CheckpointError(f"{folder} is not a bundle: {error}") from error
        raise CheckpointError(
            f"{folder} {describe_path(folder)}, and is not a bundle: {path} does not exist. Give the "
            "folder that `robo-rl export policy=<run or policy folder> out=<folder>` wrote."
        ) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise CheckpointError(
            f"{path} has format {found!r}, this version reads {FORMAT}. Use the robo-rl that wrote it, or "
            "export again."
        )
    if missing := [key for key in _KEYS if key not in data]:
        raise CheckpointError(
            f"{path} lacks {', '.join(missing)}. It was edited or cut off; export the bundle again."
        )
    needed = {POLICY_FILE, WEIGHTS_FILE, POLICY_GRAPH} | {graph["file"] for graph in data["graphs"]}
    if unlisted := sorted(needed - data["files"].keys()):
        raise CheckpointError(f"{path} has no checksum for {', '.join(unlisted)}. Export the bundle again.")
    return data


def _check_file(folder: Path, file: str, sha256: str) -> None:
    path = folder / file
    if Path(file).name != file:
        raise CheckpointError(
            f"{folder / MANIFEST} names '{file}', which is not a file of the bundle. Export it again."
        )
    if not path.is_file():
        raise CheckpointError(f"The bundle {folder} lacks {file}. Copy the whole folder, or export it again.")
    if (found := _sha256(path)) != sha256:
        raise CheckpointError(
            f"{path} is not the file that was exported (sha256 {found[:12]}…, the manifest says "
            f"{sha256[:12]}…). It was changed or damaged on the way; copy the bundle again."
        )
