"""`robo-rl export`: a policy becomes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from policies.bundle import MANIFEST, Noise, write_bundle
from policies.checkpoint import load_policy, read_policy_json
from robo_rl.apps.acting import find_policy, trained_env_spec
from robo_rl.apps.evaluate import EVALUATION_FILE
from robo_rl.conf.schema import ExportConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files import read_json


def main(config: ExportConfig) -> int:
    """Export, check the graph against torch, and say what the bundle promises."""
    folder, out = find_policy(config.policy), Path(config.out)
    if (folder / MANIFEST).is_file():
        raise ConfigError(f"{folder} is a bundle already. Give the policy folder that it was made of.")
    data, measured = read_policy_json(folder), measured_success(folder)
    bundle = write_bundle(
        out,
        load_policy(folder),
        trained_env_spec(folder),
        name=config.name or out.resolve().name,
        noise=noise_mode(config.noise, measured, data["train"]),
        training=data["train"],
        measured=measured,
    )
    parity = max(graph["parity"] for graph in bundle.manifest["graphs"])
    print(
        f"Bundle: {out}, for {bundle.env.name} at {bundle.env.control_hz:g} Hz; ONNX differs from torch by {parity:.1g}"
    )
    if measured is None:
        print(f"        its success is unknown; to note it: robo-rl evaluate policy={folder}, then export again")
    print(f"Next:   robo-rl run bundle={out}")
    return 0


def measured_success(folder: Path) -> dict[str, Any] | None:
    """What `evaluate` noted about exactly these weights, or None."""
    path = folder / EVALUATION_FILE
    if not path.is_file():
        return None
    noted = dict(read_json(path))
    return noted if noted.pop("weights_crc32", None) == read_policy_json(folder)["weights_crc32"] else None


def noise_mode(asked: str | None, measured: dict[str, Any] | None, trained: dict[str, Any]) -> Noise:
    """As asked for; else as it was evaluated; else as it was trained to run."""
    if asked not in (None, "gaussian", "zero"):
        raise ConfigError(f"noise={asked} cannot be used, expected: gaussian | zero, or none.")
    if asked is None:
        scale = trained.get("noise", 1.0) if measured is None else measured["noise"]
        return "zero" if scale == 0.0 else "gaussian"
    return cast("Noise", asked)
