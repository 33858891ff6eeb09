"""Export of a policy as a bundle: graphs, weights, manifest and checksums, written atomically."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from policies.checkpoint import save_policy
from policies.deploy.bundle import (
    FORMAT,
    MANIFEST,
    OWN_SUM,
    Bundle,
    Noise,
    load_bundle,
    sha256_of,
    sha256_of_manifest,
)
from policies.deploy.export import ExportedGraph, export_policy, normalizer_statistics
from policies.deploy.prefix_export import export_with_prefix
from policies.registry import SavedPolicy
from policies.tuned.privileged import check_measurable
from policies.vla.packed import has_prefix
from policies.vocabulary import unread_words, vocabulary_in
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import exchange, fsync_dir, write_json
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.protocols import Obs
from robo_rl.core.provenance import commit, versions
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes


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
    instruction: str | None = None,
) -> Bundle:
    """Export and write a bundle; the folder appears complete or not at all, and replaces an older bundle.

    training: JSON note on data, method, seeds. measured: {"k", "n", "wilson95", ...}, or {"mean_return", "n",
    ...} where the environment reports no success; None if not evaluated.
    rates_hz: rate of each observation key, by default the control rate. envelope: of a flight policy, for the
    safety filter. example: see `export_policy`. instruction: what a vision-language-action policy does if a
    robot is asked for nothing else.
    """
    check_bundle(folder, policy, instruction)
    _check_measured(measured)
    _clear(folder, "partial")
    partial = folder.with_name(f".{folder.name}.partial.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        save_policy(partial, policy, training)
        prefix = export_with_prefix(policy, partial, example) if has_prefix(policy) else None
        graphs = export_policy(policy, partial, example) if prefix is None else prefix.graphs
        body = _manifest(policy, env, name, noise, training, measured, rates_hz or {}, graphs)
        if prefix is not None:
            # a step-wise residual reads the newest pictures, a chunk those of its plan
            rate_hz = env.control_hz / (1 if len(graphs) > 1 else policy.execute)
            body["prefix"] = prefix.to_json() | {"rate_hz": rate_hz, "instruction": instruction}
        if envelope is not None:
            body["envelope"] = envelope.to_json()
        body["files"] = _checksums(partial)
        write_json(partial / MANIFEST, body | {OWN_SUM: sha256_of_manifest(body)})
        _swap(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return load_bundle(folder)


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


def check_bundle(folder: Path, policy: SavedPolicy, instruction: str | None) -> None:
    """Raise ConfigError for a folder, a policy or an instruction that a bundle cannot have; takes no time."""
    check_measurable(policy, "A bundle")
    _check_instruction(policy, instruction)
    _check_target(folder)


def _check_target(folder: Path) -> None:
    """Raise unless the target is absent, an empty folder or an older bundle: other data are not replaced."""
    if (
        folder.exists()
        and not (folder / MANIFEST).is_file()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise ConfigError(
            f"{folder} exists and is not a bundle. Choose another output folder, or delete it first."
        )


def _check_instruction(policy: SavedPolicy, instruction: str | None) -> None:
    if instruction is None:
        return
    if INSTRUCTION not in policy.obs_spec:
        raise ConfigError(
            f"The policy reads no instruction, only {sorted(policy.obs_spec)}. Leave instruction= out."
        )
    to_bytes(instruction)
    unread_words(instruction, vocabulary_in(policy.config()))


def _check_measured(measured: Mapping[str, Any] | None) -> None:
    if measured is None or {"mean_return", "n"} <= measured.keys():
        return
    if missing := {"k", "n", "wilson95"} - measured.keys():
        raise ConfigError(
            f"A measured success needs k, n and wilson95, {sorted(missing)} missing. Pass a full result."
        )


def _checksums(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        path.name: {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        for path in sorted(folder.iterdir())
    }


def _swap(partial: Path, folder: Path) -> None:
    """Move the new folder into place and delete an older one. After a kill at any instant, one of both is
    found.
    """
    if not folder.exists():
        partial.replace(folder)
    elif not exchange(partial, folder):
        old = folder.with_name(f".{folder.name}.old.{os.getpid()}")
        folder.replace(old)  # readers find it there, see `existing_folder`
        try:
            partial.replace(folder)
        except OSError:
            old.replace(folder)
            raise
    fsync_dir(folder.parent)
    shutil.rmtree(partial, ignore_errors=True)
    _clear(folder, "old")


def _clear(folder: Path, kind: str) -> None:
    """Delete leftovers in this folder of writers that were killed, and our own."""
    for path in folder.parent.glob(f".{glob.escape(folder.name)}.{kind}.*"):
        pid = path.suffix[1:]
        if pid == str(os.getpid()) or not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)
